"""A device under use: its driver, its two streams, and kernels that every program needs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from foldbatch.engines.cuda import row_kernels
from foldbatch.engines.cuda.arrays import DeviceArray
from foldbatch.engines.cuda.common import TEXT
from foldbatch.engines.cuda.drivers.driver import DeviceBuffer, Driver, Event, Function
from foldbatch.engines.cuda.faults import Faults
from foldbatch.params.parameters import Array, Parameter
from foldbatch.system.forks import start_in_each_process

IN_FLIGHT = 64  # copies whose pinned memory is kept, as nobody else may have it before they are done


class Device:
    """A device under use, by one thread at a time.

    Args:
        driver: does what is asked.

    Attributes:
        driver: see there.
        stream: where everything is computed.
        copies: where batches are copied to the device.
        lock: held by the thread that uses the device.
        values: the array of each parameter that was ever here, see `parameters.device_value`.
        due: a step whose launch is put off, see `foldbatch.engines.cuda.run`; None if there is none.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.stream = driver.stream()
        self.copies = driver.stream()
        self.values: WeakKeyDictionary[Parameter, DeviceArray] = WeakKeyDictionary()
        self.due: Any = None
        self._kernels: dict[tuple[str, str], Function] = {}
        self._in_flight: dict[
            int, tuple[Event, Array]
        ] = {}  # by the identity of the memory, the oldest first
        start_in_each_process(self, Device._start)

    def _start(self) -> None:
        self.lock = threading.RLock()

    def flush(self) -> None:
        """Launch the step that is due. Whatever uses the device's arrays comes after it."""
        with self.lock:
            due, self.due = self.due, None
            if due is not None:
                due.fire()

    @cached_property
    def _common(self) -> Callable[[str], Function]:
        return self.driver.load(f"{TEXT}\n{row_kernels.TEXT}")

    @cached_property
    def faults(self) -> Faults:
        """Updates that the device refused."""
        return Faults(self)

    def kernel(self, text: str, name: str) -> Function:
        """Return a kernel of a text, which is loaded once."""
        if (text, name) not in self._kernels:
            self._kernels[text, name] = self.driver.load(text)(name)
        return self._kernels[text, name]

    def names(self) -> dict[int, str]:
        """Return the names of the kernels loaded so far, by the identity of their functions."""
        return {id(kernel): name for (_, name), kernel in self._kernels.items()}

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """Return memory with any content."""
        return self.driver.allocate(max(1, nbytes))

    def empty(self, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        """Return an array with any content."""
        return DeviceArray(self, self.allocate(prod(shape) * np.dtype(dtype).itemsize), shape, dtype)

    def zeros(self, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        """Return an array of zeros."""
        self.flush()
        made = self.empty(shape, dtype)
        if made.nbytes:
            self.driver.fill(made.pointer, 0, made.nbytes, self.stream)
        return made

    def put(self, array: Array) -> DeviceArray:
        """Return a copy of an array of the host."""
        made = self.empty(array.shape, array.dtype.name)
        self.write(made, array)
        return made

    def write(self, target: DeviceArray, source: Array) -> None:
        """Copy an array of the host to one of its shape and dtype; `source` may change then."""
        self.flush()
        if source.nbytes:
            staged = self.driver.pinned(source.nbytes)
            staged[:] = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
            self.driver.copy_in(target.pointer, staged, self.stream)
            self._mark(staged)

    def read(self, source: DeviceArray) -> Array:
        """Return a copy of an array of the device; waits until it is computed."""
        return self.read_later(source)()

    def read_later(self, source: DeviceArray) -> Callable[[], Array]:
        """Copy an array to the host when it is computed; return what waits for the copy."""
        self.flush()
        staged = self.driver.pinned(max(1, source.nbytes))
        if source.nbytes:
            self.driver.copy_out(staged, source.pointer, self.stream)
        event = self._mark(staged)

        def wait() -> Array:
            self.driver.synchronize(event)
            self._forget(event)
            return staged[: source.nbytes].view(source.dtype).reshape(source.shape).copy()

        return wait

    def _mark(self, staged: Array) -> Event:
        """Keep pinned memory of a copy that was enqueued, and return the event of its end."""
        event = self.driver.event()
        self.driver.record(event, self.stream)
        self.keep(event, staged)
        return event

    def keep(self, event: Event, staged: Array) -> None:
        """Keep pinned memory until an event, also where nobody else holds it any more."""
        with self.lock:
            # a block that is sent again has recorded its event anew: nobody must wait for that as an old one
            self._in_flight.pop(id(staged), None)
            if len(self._in_flight) >= IN_FLIGHT:  # it is done, unless the host is many batches ahead
                oldest, _ = self._in_flight.pop(next(iter(self._in_flight)))
                self.driver.synchronize(oldest)
            self._in_flight[id(staged)] = event, staged

    def _forget(self, event: Event) -> None:
        """Let go of pinned memory that was kept until an event that has happened, or an earlier one."""
        with self.lock:
            events = [kept for kept, _ in self._in_flight.values()]
            done = events.index(event) + 1 if event in events else 0
            for place in list(self._in_flight)[:done]:
                del self._in_flight[place]

    def synchronize(self) -> None:
        """Wait until everything is computed."""
        self.flush()
        self.wait()

    def wait(self) -> None:
        """Wait until what was launched is computed."""
        with self.lock:  # what others keep from now on may not be done when the event is
            kept = list(self._in_flight.items())
            event = self.driver.event()
            self.driver.record(event, self.stream)
        self.driver.synchronize(event)
        with self.lock:  # what is computed waits for copies on the other stream
            for place, held in kept:
                if self._in_flight.get(place) is held:
                    del self._in_flight[place]

    def launch(
        self,
        kernel: str | Function,
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
    ) -> None:
        """Run a kernel, or one of `common` or `row_kernels` by its name."""
        self.flush()
        function = kernel
        if isinstance(kernel, str):
            function = self._kernels.get(("", kernel))
            if function is None:
                function = self._kernels["", kernel] = self._common(kernel)
        self.driver.launch(function, blocks, threads, arguments, self.stream)
