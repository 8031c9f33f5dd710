"""A device under use: its driver, its two streams, and kernels that every program needs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from foldbatch.engines.cuda.arrays import DeviceArray
from foldbatch.engines.cuda.common import COMMON
from foldbatch.engines.cuda.driver import Buffer, Driver, Function, Touched
from foldbatch.params import Array


class Device:
    """A device under use, by one thread at a time.

    Args:
        driver: does what is asked.

    Attributes:
        driver: see there.
        stream: where everything is computed.
        copies: where batches are copied to the device.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.stream = driver.stream()
        self.copies = driver.stream()
        self.lock = threading.RLock()

    @cached_property
    def _common(self) -> dict[str, Function]:
        module = self.driver.load("\n".join(COMMON.values()))
        return {name: module.function(name) for name in COMMON}

    def allocate(self, nbytes: int) -> Buffer:
        """Return memory with any content."""
        return self.driver.allocate(max(1, nbytes))

    def empty(self, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        """Return an array with any content."""
        return DeviceArray(self, self.allocate(int(np.prod(shape)) * np.dtype(dtype).itemsize), shape, dtype)

    def put(self, array: Array) -> DeviceArray:
        """Return a copy of an array of the host."""
        made = self.empty(array.shape, array.dtype.name)
        self.write(made, array)
        return made

    def write(self, target: DeviceArray, source: Array) -> None:
        """Copy an array of the host into one of the device; it has its shape and dtype."""
        if source.nbytes:
            staged = self.driver.pinned(source.nbytes)
            staged[:] = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
            self.driver.copy_in(target.pointer, staged, self.stream)
            self.synchronize()  # until then the pinned memory must stay

    def read(self, source: DeviceArray) -> Array:
        """Return a copy of an array of the device."""
        staged = self.driver.pinned(source.nbytes)
        if source.nbytes:
            self.driver.copy_out(staged, source.pointer, self.stream)
            self.synchronize()
        return staged.view(source.dtype).reshape(source.shape).copy()

    def synchronize(self) -> None:
        """Wait until everything is computed."""
        event = self.driver.event()
        self.driver.record(event, self.stream)
        self.driver.synchronize(event)

    def launch(
        self,
        name: str,
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
        touched: Callable[[], Touched] | None = None,
    ) -> None:
        """Run a kernel of `common.COMMON`."""
        self.driver.launch(self._common[name], blocks, threads, arguments, self.stream, touched)

    # to be replaced

    def value_of(self, parameter):
        return self.put(parameter.value)

    def total(self, terms):
        from foldbatch.engines.sums import total
        from foldbatch.params import SparseRows
        terms = [SparseRows(t.rows, np.asarray(t.values), t.shape) if isinstance(t, SparseRows) else np.asarray(t) for t in terms]
        return total(terms)
