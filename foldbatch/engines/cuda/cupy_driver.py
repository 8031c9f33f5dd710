"""The driver of a GPU: `driver.Driver` by CuPy, which is imported when a driver is made.

Memory comes from CuPy's pool, for the first stream that the driver makes: everything is computed there.
Memory that is given back serves what is enqueued on that stream later, so it is never in use twice. Another
stream must wait for an event of the first one before it touches memory that was allocated just now; and the
first one must wait for an event of the other before it uses what is there, or gives it back. Memory of the
host serves others as soon as nobody holds it, so it must be held until a copy from it or to it is done.

cuBLAS is called by ctypes, with a handle of our own. CuPy's functions would do but for one thing: each call
binds the handle to CuPy's current stream, and with that cuBLAS forgets the memory it was given. Without such
memory a CUDA graph can hold no product.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from foldbatch.engines.cuda.driver import ARGUMENTS, HEADER, DeviceBuffer, MatrixProduct
from foldbatch.errors import BackendError, DeviceMemoryError, install
from foldbatch.params.parameters import Array
from foldbatch.system.processes import start_in_each_process

OTHERWISE = "or take the backend llvm"
DRIVERS = {12: "525.60", 13: "580"}  # by version of CUDA, the first driver for it
INSTALL = f"{install('cuda13')}, or the extra cuda12 where the driver is older than 580"


def check() -> Any:
    """Return CuPy, where it, the driver and a GPU are there and fit each other."""
    if find_spec("cupy") is None:
        raise _error("CuPy to be installed", "none", f"{INSTALL}; {OTHERWISE}")
    try:
        cupy, runtime = import_module("cupy"), import_module("cupy_backends.cuda.api.runtime")
    except ImportError as error:
        raise _error(
            "CuPy to work", _message_of(error), f"install CuPy anew: {INSTALL}; {OTHERWISE}"
        ) from None
    if runtime.is_hip:
        fix = f"pip uninstall cupy, then {INSTALL}; {OTHERWISE}"
        raise _error("CuPy for CUDA", "CuPy for ROCm", fix)
    there, needed = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    if not there:
        raise _error("NVIDIA's driver", "none", f"install the driver, {OTHERWISE}")
    if there // 1000 < needed // 1000:
        first = DRIVERS.get(needed // 1000)
        expected = f"a driver for CUDA {needed // 1000}" + (f" ({first} or later)" if first else "")
        fix = f"update the driver, or pip uninstall the CuPy there is, then {INSTALL}"
        actual = f"one for CUDA {there // 1000}.{there % 1000 // 10}"
        raise _error(f"{expected}, which CuPy is made for", actual, fix)
    try:
        runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        actual = str(error) + (f", with CUDA_VISIBLE_DEVICES={visible!r}" if visible is not None else "")
        raise _error("a GPU", actual, f"run nvidia-smi and mend what it says, {OTHERWISE}") from None
    return cupy


def check_compiler(major: int) -> None:
    """Raise an error where CuPy finds no NVRTC, which compiles kernels."""
    try:
        import_module("cupy_backends.cuda.libs.nvrtc").getVersion()
    except (ImportError, OSError, RuntimeError) as error:
        raise _missing("NVRTC", major, error) from None


def cublas(major: int) -> Any:
    """Return cuBLAS of a version of CUDA, loaded by ctypes."""
    try:
        import_module("cupy_backends.cuda.libs").cublas  # noqa: B018 - CuPy knows best where it is, and loads it
        return ctypes.CDLL(f"libcublas.so.{major}")
    except (ImportError, OSError) as error:
        raise _missing("cuBLAS", major, error) from None


def _missing(library: str, major: int, error: Exception) -> BackendError:
    return _error(f"{library} of CUDA {major}", _message_of(error), install(f"cuda{major}"))


def _message_of(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _error(expected: str, actual: str, fix: str) -> BackendError:
    return BackendError("backend cuda", expected, actual, fix)


WORKSPACE = 1 << 25  # bytes, which is what NVIDIA recommends for its largest GPUs

# Values of cuBLAS's and CUDA's enumerations.
KINDS = {"float32": 0, "float64": 1}
COMPUTE = {"fp32": 68, "tf32": 77, "bf16": 75, "3xtf32": 68}  # 3xtf32: what no kernel of ours does
COMPUTE_F8 = 70
DEFAULT_MATH = 0  # as exact as the operands: with `COMPUTE["fp32"]`, no operand is shortened
DEFAULT_ALGORITHM = -1


def as_columns(p: MatrixProduct) -> tuple[int, ...]:
    """Return a product of matrices row by row as the same product column by column.

    A matrix that lies row by row is, read column by column, the transposed one. So cuBLAS is asked for
    ``C^T = B^T A^T``: the operands change places, and nothing is transposed that was not across before.

    It is whether op(A) and op(B) are transposed (1 or 0); rows, columns and what is summed over; and of each
    matrix the address of the first, from one column to the next, and from one matrix to the next.

    >>> as_columns(MatrixProduct("float32", 2, 3, 4, a=256, b=512, c=768, a_lead=4, b_lead=3, c_lead=3))[:5]
    (0, 0, 3, 2, 4)
    """
    operands = p.b, p.b_lead, p.b_step, p.a, p.a_lead, p.a_step, p.c, p.c_lead, p.c_step
    return int(p.b_across), int(p.a_across), p.n, p.m, p.k, *operands


def stretches(p: MatrixProduct) -> list[tuple[int, int]]:
    """Return where the results of a product lie: the address and the bytes of each stretch of memory."""
    size = 4 if p.dtype == "float32" else 8
    rows, row = (1, p.m * p.n) if p.c_lead == p.n else (p.m, p.n)
    count, step = p.count, p.c_step
    if rows == 1 and step == row:
        count, row = 1, row * count
    return [
        (p.c + (i * step + r * p.c_lead) * size, row * size) for i in range(count) for r in range(rows) if row
    ]


class Blas:
    """Products on one stream, for one thread at a time.

    It is given cuBLAS, loaded by ctypes; the stream's address; memory of `WORKSPACE` bytes for cuBLAS alone;
    and a name in `COMPUTE`: what products of float32 are computed with.
    """

    def __init__(self, library: Any, stream: int, workspace: Any, precision: str) -> None:
        self._library = library
        self._workspace = workspace  # held as long as the handle may use it
        self._handle = ctypes.c_void_p()
        library.cublasGetStatusString.restype = ctypes.c_char_p
        self._checked(library.cublasCreate_v2(ctypes.byref(self._handle)))
        self._checked(library.cublasSetStream_v2(self._handle, ctypes.c_void_p(stream)))
        memory, size = ctypes.c_void_p(workspace.pointer), ctypes.c_size_t(workspace.nbytes)
        self._checked(library.cublasSetWorkspace_v2(self._handle, memory, size))  # after the stream
        self._checked(library.cublasSetMathMode(self._handle, DEFAULT_MATH))
        self._compute = {"float32": COMPUTE[precision], "float64": COMPUTE_F8}
        self._numbers = {
            "float32": (ctypes.c_float(0), ctypes.c_float(1)),
            "float64": (ctypes.c_double(0), ctypes.c_double(1)),
        }
        self._constants = {
            dtype: [ctypes.c_void_p(ctypes.addressof(number)) for number in numbers]
            for dtype, numbers in self._numbers.items()
        }
        # Objects of 64 bits are used again: to make them takes as long as a call. Other numbers are C ints.
        self._words = [ctypes.c_void_p() for _ in "abc"], [ctypes.c_longlong() for _ in "abc"]

    def multiply(self, product: MatrixProduct) -> None:
        """Do products of matrices, none of which is empty."""
        (a, b, c), (step_a, step_b, step_c) = self._words
        across_a, across_b, m, n, k, *places = as_columns(product)
        a.value, lead_a, step_a.value, b.value, lead_b, step_b.value, c.value, lead_c, step_c.value = places
        kind, compute = KINDS[product.dtype], self._compute[product.dtype]
        if product.precision and product.dtype == "float32":
            compute = COMPUTE[product.precision]
        zero, unit = self._constants[product.dtype]
        beta = unit if product.adds else zero
        head = (self._handle, across_a, across_b, m, n, k, unit)
        if product.count == 1:
            operands = (a, kind, lead_a, b, kind, lead_b, beta, c, kind, lead_c)
            status = self._library.cublasGemmEx(*head, *operands, compute, DEFAULT_ALGORITHM)
        else:
            batched = (a, kind, lead_a, step_a, b, kind, lead_b, step_b, beta, c, kind, lead_c, step_c)
            status = self._library.cublasGemmStridedBatchedEx(
                *head, *batched, product.count, compute, DEFAULT_ALGORITHM
            )
        if status:
            self._checked(status)

    def _checked(self, status: int) -> None:
        if status:
            message = self._library.cublasGetStatusString(status).decode()
            fix = "look for an earlier error of the GPU, and whether its memory suffices"
            raise BackendError("backend cuda", "cuBLAS to multiply matrices", message, fix)

    def __del__(self) -> None:
        if self._handle.value and not sys.is_finalizing():
            self._library.cublasDestroy_v2(self._handle)


P = ParamSpec("P")
R = TypeVar("R")
OPTIONS = ("-std=c++17", "--diag-suppress=177")  # of NVRTC; 177: a function that no kernel calls
_OVERLAPPING = re.compile(r"^KERNEL\w* (\w+)\([^)]*\) \{\s*OVERLAP\(\);", re.MULTILINE)
_PACKED = [struct.Struct(f"{count}q").pack_into for count in range(ARGUMENTS + 1)]


class CupyBuffer:
    """Memory of a GPU; see `driver.DeviceBuffer`."""

    __slots__ = ("memory", "nbytes", "pointer")

    def __init__(self, memory: Any, nbytes: int) -> None:
        self.memory = memory  # CuPy takes it back when nobody holds this
        self.pointer: int = memory.ptr
        self.nbytes = nbytes


class CupyFunction(NamedTuple):
    """A kernel; see `driver.Driver.load`."""

    ptr: int  # its address
    source: Any  # CuPy's function, which keeps its module alive
    overlaps: bool  # whether it says OVERLAP, see ``device.h``


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


class _Attribute(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("gap", ctypes.c_int), ("value", ctypes.c_int * 16))


class _Launch(ctypes.Structure):
    """How CUDA launches a kernel: extents of the grid and of a block, shared memory, stream, attributes."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


OVERLAPPING = _Attribute(6, 0, (1,))  # programmatic stream serialisation, which device.h's OVERLAP is about


def _overlapping() -> Any:
    """Return the driver's function that launches kernels with attributes; None if it has none."""
    try:
        launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    except (OSError, AttributeError):
        return None
    launch.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return launch


def _here(method: Callable[P, R]) -> Callable[P, R]:
    """Let a method of a driver run with its GPU as the thread's current one, and leave that as it was.

    An error of CUDA becomes a `BackendError` that says what to do.
    """

    @wraps(method)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        """Run the method with the driver's GPU as the current one."""
        driver: Any = arguments[0]
        before = None
        try:
            before = driver.current()
            if before == driver.number:
                return method(*arguments, **options)
            driver.make_current(driver.number)
            return method(*arguments, **options)
        except driver.failures as error:
            raise _failure(driver.name, error) from error
        finally:
            if before not in (None, driver.number):
                with suppress(*driver.failures):  # a GPU that has failed refuses this, too
                    driver.make_current(before)

    return run


def _failure(name: str, error: Exception) -> BackendError:
    """Return an error about work of a GPU that failed, which CUDA tells at some later call of any kind."""
    if "MemoryAllocation" in str(error) or "OUT_OF_MEMORY" in str(error):
        expected = f"memory on {name} for a stream, an event or a graph"
        fix = "take smaller batches, or end what else uses the GPU"
        return DeviceMemoryError("backend cuda", expected, str(error), fix)
    fix = (
        "start the process anew, as a GPU serves it no longer after most errors; with CUDA_LAUNCH_BLOCKING=1"
        " and FOLDBATCH_LAUNCH=straight in the environment the traceback shows the call that failed"
    )
    return BackendError("backend cuda", f"work on {name} to succeed", str(error), fix)


class CupyDriver:
    """A GPU; see `driver.Driver`. Whatever GPU is a thread's current one stays so; see `load_driver`."""

    def __init__(self, cupy: Any, precision: str, number: int | None = None) -> None:
        self._cupy = cupy
        self._runtime = runtime = cupy.cuda.runtime
        self._start_kernel = cupy.cuda.driver.launchKernel
        self.failures = runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError
        self._precision = precision
        self.current, self.make_current = runtime.getDevice, runtime.setDevice
        self.number: int = self.current() if number is None else number
        self._major: int = runtime.runtimeGetVersion() // 1000
        properties = runtime.getDeviceProperties(self.number)
        self.name: str = properties["name"].decode()
        # the place tells GPUs of a machine apart, and the other what CuPy has of their number, up to a zero
        self.identity = f"{properties['uuid'].hex()} at {runtime.deviceGetPCIBusId(self.number)}"
        check_compiler(self._major)
        self._cublas = cublas(self._major)
        self.overlap = (
            _overlapping() if properties["major"] >= 9 else None
        )  # None: kernels wait for their turn
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
        """Return memory of the GPU; an error says how much is free."""
        self._words()
        cupy = self._cupy
        try:
            with self._first or self.stream():
                return CupyBuffer(cupy.cuda.alloc(nbytes), nbytes)
        except cupy.cuda.memory.OutOfMemoryError:
            free, total = self._runtime.memGetInfo()
            actual = f"{_size(free)} free of {_size(total)}"
            fix = "take smaller batches, or end what else uses the GPU"
            expected = f"{_size(nbytes)} more memory on {self.name}"
            raise DeviceMemoryError("backend cuda", expected, actual, fix) from None

    @_here
    def pinned(self, nbytes: int) -> Array:
        """Return memory of the host that copies need not pass through another place.

        Raises:
            DeviceMemoryError: when the system pins no more, even after the pool has given back what is free.
        """
        if not nbytes:
            return np.empty(0, np.uint8)
        cupy = self._cupy
        try:
            memory = cupy.cuda.alloc_pinned_memory(nbytes)
        except self.failures:
            cupy.get_default_pinned_memory_pool().free_all_blocks()  # of sizes that nobody asks for now
            try:
                memory = cupy.cuda.alloc_pinned_memory(nbytes)
            except self.failures as error:
                expected = f"{_size(nbytes)} of the host's memory pinned for copies to {self.name}"
                fix = "take smaller batches, or raise the bound of locked memory (ulimit -l)"
                raise DeviceMemoryError("backend cuda", expected, str(error), fix) from None
        return np.frombuffer(memory, np.uint8, nbytes)

    @_here
    def stream(self) -> Any:
        self._words()
        stream = self._cupy.cuda.Stream(non_blocking=True)
        self._first = self._first or stream
        return stream

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
    def completed(self, event: Any) -> bool:
        return bool(event.done)

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
        """Return a function that finds kernels of a text by name, compiled by NVRTC."""
        self._words()
        text = f'{HEADER.read_text()}\n#line 1 "kernels"\n{source}'
        module = self._cupy.RawModule(code=text, options=OPTIONS).module
        overlapping = set(_OVERLAPPING.findall(source))

        def find(name: str) -> CupyFunction:
            function = module.get_function(name)
            return CupyFunction(function.ptr, function, name in overlapping)

        return find

    @_here
    def launch(
        self, function: Any, blocks: int, threads: tuple[int, int], arguments: Sequence[int], stream: Any
    ) -> None:
        """Launch a kernel on a stream, overlapping the one before where its text allows it."""
        values, addresses = self._words()
        _PACKED[len(arguments)](values, 0, *arguments)
        if function.overlaps and self.overlap is not None and stream.ptr:  # no overlap on the default stream
            how = _Launch(blocks, 1, 1, *threads, 1, 0, stream.ptr, ctypes.addressof(OVERLAPPING), 1)
            status = self.overlap(ctypes.byref(how), function.ptr, addresses, None)
            if status:
                fix = "look for an earlier error of the GPU"
                raise BackendError("backend cuda", "a kernel to be launched", f"error {status} of CUDA", fix)
            return
        # CuPy's functions make two objects of each argument, which takes several times as long as this
        self._start_kernel(function.ptr, blocks, 1, 1, threads[0], threads[1], 1, 0, stream.ptr, addresses, 0)

    @_here
    def multiply(self, product: MatrixProduct, stream: Any) -> None:
        """Enqueue a product of matrices; an empty one sets its result to zero, or adds nothing."""
        p = product
        if p.m and p.n and p.k and p.count:
            self._blas(stream).multiply(p)
        elif not p.adds:
            for pointer, nbytes in stretches(p):
                self.fill(pointer, 0, nbytes, stream)

    @_here
    def prepare(self, stream: Any) -> None:
        """Make what products on a stream need, which cannot be made while the stream is captured."""
        self._blas(stream)

    def _blas(self, stream: Any) -> Blas:
        """Return the handle of cuBLAS for a stream."""
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
        """Return a CuPy array that shares the memory of a buffer, and keeps the buffer alive.

        CuPy's current stream is made to wait for the work in progress. The caller must have read the array
        before the next batch, which may overwrite the memory.
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


def load_driver(precision: str = "fp32", number: int | None = None) -> CupyDriver:
    """Return the driver of a GPU.

    Args:
        precision: how products of float32 are computed: ``fp32``, of the operands as they are; ``tf32``, of
            operands rounded to 10 bits behind the point; ``bf16``, to 7 bits; ``3xtf32``, as in ``fp32``: the
            engine launches kernels for large ones, see `tensor_products`. Sums are of float32.
        number: of the GPU; by default that of CuPy's current device.
    """
    return CupyDriver(check(), precision, number)
