"""The driver of a GPU: `driver.Driver` by CuPy, which is imported when a driver is made.

Memory comes from CuPy's pool, for the first stream that the driver makes: everything is computed there.
Memory that is given back serves what is enqueued on that stream later, so it is never in use twice. Another
stream must wait for an event of the first one before it touches memory that was allocated just now; and the
first one must wait for an event of the other before it uses what is there, or gives it back. Memory of the
host serves others as soon as nobody holds it, so it must be held until a copy from it or to it is done.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from foldbatch.engines.cuda.drivers.card import check, check_compiler, cublas
from foldbatch.engines.cuda.drivers.cublas import WORKSPACE, Blas, stretches
from foldbatch.engines.cuda.drivers.driver import ARGUMENTS, HEADER, DeviceBuffer, MatrixProduct
from foldbatch.errors import BackendError
from foldbatch.params.parameters import Array
from foldbatch.system.processes import start_in_each_process

P = ParamSpec("P")
R = TypeVar("R")
OPTIONS = ("-std=c++17", "--diag-suppress=177")  # of NVRTC; 177: a function that no kernel calls
_PACKED = [struct.Struct(f"{count}q").pack_into for count in range(ARGUMENTS + 1)]


class CupyBuffer:
    """Memory of a GPU; see `driver.DeviceBuffer`."""

    __slots__ = ("memory", "nbytes", "pointer")

    def __init__(self, memory: Any, nbytes: int) -> None:
        self.memory = memory  # CuPy takes it back when nobody holds this
        self.pointer: int = memory.ptr
        self.nbytes = nbytes


class CupyClock:
    """Tells when streams of a GPU do things, by events; see `driver.Driver.clock`."""

    def __init__(self, cupy: Any, stream: Any) -> None:
        self._cupy = cupy
        self._first = self.mark(stream)
        self._first.synchronize()
        self._start = time.perf_counter()

    def mark(self, stream: Any) -> Any:
        """Return an event that happens when all is done that a stream has to do now."""
        event = self._cupy.cuda.Event()
        event.record(stream)
        return event

    def seconds(self, mark: Any) -> float:
        """Return when an event happened, as `time.perf_counter` would have told."""
        milliseconds: float = self._cupy.cuda.get_elapsed_time(self._first, mark)
        return self._start + milliseconds / 1e3


def _here(method: Callable[P, R]) -> Callable[P, R]:
    """Let a method of a driver run with its GPU as the thread's current one, and leave that as it was."""

    @wraps(method)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        driver: Any = arguments[0]
        before = driver.current()
        if before == driver.number:
            return method(*arguments, **options)
        driver.make_current(driver.number)
        try:
            return method(*arguments, **options)
        finally:
            driver.make_current(before)

    return run


class CupyDriver:
    """A GPU; see `driver.Driver`. Whatever GPU is a thread's current one stays so.

    Args:
        cupy: the module.
        precision: what products of float32 are computed with: ``fp32``, ``tf32`` or ``bf16``.

    Raises:
        BackendError: when there is no NVRTC for the GPU, or no cuBLAS.
    """

    def __init__(self, cupy: Any, precision: str) -> None:
        self._cupy = cupy
        self._runtime = runtime = cupy.cuda.runtime
        self._start_kernel = cupy.cuda.driver.launchKernel
        self._precision = precision
        self.current, self.make_current = runtime.getDevice, runtime.setDevice
        self.number: int = self.current()
        self._major: int = runtime.runtimeGetVersion() // 1000
        self.name: str = runtime.getDeviceProperties(self.number)["name"].decode()
        check_compiler(self._major)
        self._cublas = cublas(self._major)
        self._products: dict[int, Blas] = {}
        self._first: Any = None
        self._process = os.getpid()
        start_in_each_process(self, CupyDriver._start)

    def _start(self) -> None:
        self._local = threading.local()

    def _words(self) -> tuple[Any, int]:
        """Return a thread's memory for the arguments of a launch, and the address of their addresses."""
        try:
            words: tuple[Any, int] = self._local.words
        except AttributeError:
            if os.getpid() != self._process:
                expected = "the process that the program was compiled in"
                fix = "start processes with multiprocessing.get_context('spawn'), or compile in each of them"
                raise BackendError("backend cuda", expected, "one forked from it", fix) from None
            values = (ctypes.c_longlong * ARGUMENTS)()
            start = ctypes.addressof(values)
            addresses = (ctypes.c_void_p * ARGUMENTS)(*range(start, start + 8 * ARGUMENTS, 8))
            self._local.addresses = addresses
            words = self._local.words = values, ctypes.addressof(addresses)
        return words

    @_here
    def allocate(self, nbytes: int) -> CupyBuffer:
        self._words()
        cupy = self._cupy
        try:
            with self._first or self.stream():
                return CupyBuffer(cupy.cuda.alloc(nbytes), nbytes)
        except cupy.cuda.memory.OutOfMemoryError:
            free, total = self._runtime.memGetInfo()
            found = f"{_size(free)} free of {_size(total)}"
            fix = "take smaller batches, or end what else uses the GPU"
            raise BackendError(
                "backend cuda", f"{_size(nbytes)} more memory on {self.name}", found, fix
            ) from None

    @_here
    def pinned(self, nbytes: int) -> Array:
        if not nbytes:
            return np.empty(0, np.uint8)
        memory = self._cupy.cuda.alloc_pinned_memory(nbytes)
        return np.frombuffer(memory, np.uint8, nbytes)

    @_here
    def stream(self) -> Any:
        self._words()
        made = self._cupy.cuda.Stream(non_blocking=True)
        self._first = self._first or made
        return made

    @_here
    def event(self) -> Any:
        self._words()
        return self._cupy.cuda.Event(disable_timing=True)

    @_here
    def record(self, event: Any, stream: Any) -> None:
        event.record(stream)

    @_here
    def wait(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    @_here
    def synchronize(self, event: Any) -> None:
        event.synchronize()

    @_here
    def clock(self, stream: Any) -> CupyClock:
        return CupyClock(self._cupy, stream)

    @_here
    def copy_in(self, pointer: int, source: Array, stream: Any) -> None:
        kind = self._runtime.memcpyHostToDevice
        self._runtime.memcpyAsync(pointer, _address(source), source.nbytes, kind, stream.ptr)

    @_here
    def copy_out(self, target: Array, pointer: int, stream: Any) -> None:
        kind = self._runtime.memcpyDeviceToHost
        self._runtime.memcpyAsync(_address(target), pointer, target.nbytes, kind, stream.ptr)

    @_here
    def copy(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        kind = self._runtime.memcpyDeviceToDevice
        self._runtime.memcpyAsync(target, source, nbytes, kind, stream.ptr)

    @_here
    def fill(self, pointer: int, byte: int, nbytes: int, stream: Any) -> None:
        self._runtime.memsetAsync(pointer, byte, nbytes, stream.ptr)

    @_here
    def load(self, source: str) -> Callable[[str], Any]:
        self._words()
        text = f'{HEADER.read_text()}\n#line 1 "kernels"\n{source}'
        finds: Callable[[str], Any] = self._cupy.RawModule(code=text, options=OPTIONS).module.get_function
        return finds

    @_here
    def launch(
        self,
        function: Any,
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
        stream: Any,
    ) -> None:
        values, addresses = self._words()
        _PACKED[len(arguments)](values, 0, *arguments)
        # CuPy's functions make two objects of each argument, which takes several times as long as this
        self._start_kernel(function.ptr, blocks, 1, 1, threads[0], threads[1], 1, 0, stream.ptr, addresses, 0)

    @_here
    def multiply(self, product: MatrixProduct, stream: Any) -> None:
        p = product
        if p.m and p.n and p.k and p.count:
            self._blas(stream).multiply(p)
        elif not p.adds:
            for pointer, nbytes in stretches(p):
                self.fill(pointer, 0, nbytes, stream)

    def _blas(self, stream: Any) -> Blas:
        blas = self._products.get(stream.ptr)
        if blas is None:
            blas = Blas(self._cublas, stream.ptr, self.allocate(WORKSPACE), self._precision)
            self._products[stream.ptr] = blas
            self._follow(stream)
        return blas

    @_here
    def begin_capture(self, stream: Any) -> None:
        """See `driver.Driver`. Graphs of one stream share its memory for products: run them on one stream.

        The mode is relaxed: what other threads do meanwhile is no part of the graph, and must not end it.
        """
        self._words()
        stream.begin_capture(self._runtime.streamCaptureModeRelaxed)

    @_here
    def end_capture(self, stream: Any) -> Any:
        graph = stream.end_capture()
        graph.upload(stream)
        return graph

    @_here
    def replay(self, graph: Any, stream: Any) -> None:
        self._words()
        graph.launch(stream)

    @_here
    def array(self, buffer: DeviceBuffer, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an array of CuPy over a buffer, which it holds.

        CuPy's current stream waits for what is computed now. It must be done with the array before the next
        batch changes what is there.
        """
        cuda = self._cupy.cuda
        self._follow(cuda.get_current_stream())
        memory = cuda.UnownedMemory(buffer.pointer, buffer.nbytes, buffer, self.number)
        return self._cupy.ndarray(shape, dtype, cuda.MemoryPointer(memory, 0))

    def _follow(self, stream: Any) -> None:
        """Let a stream wait for what the first one has to do now."""
        event = self.event()
        self.record(event, self._first)
        self.wait(stream, event)


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e9:,.2f} GB" if nbytes >= 1e8 else f"{nbytes / 1e6:,.2f} MB"


def load_driver(precision: str = "fp32") -> CupyDriver:
    """Return the driver of the GPU that is CuPy's current device.

    Args:
        precision: how products of float32 are computed: ``fp32``, of the operands as they are; ``tf32``, of
            operands rounded to 10 bits behind the point; ``bf16``, to 7 bits. Sums are of float32.

    Raises:
        BackendError: when there is no GPU that can be used: what is missing, and what to do.
    """
    return CupyDriver(check(), precision)
