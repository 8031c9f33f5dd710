"""A stand-in for CuPy and cuBLAS on the memory of the host: it does what it is asked at once, and writes it down.

Kernels are compiled and run by the emulator.
"""

import ctypes
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from foldbatch.engines.cuda import cupy_driver
from foldbatch.engines.cuda.cupy_driver import COMPUTE, COMPUTE_F8, CupyDriver
from foldbatch.engines.cuda.driver import HEADER
from tests.engines.cuda.emulator import Emulator


class OutOfMemoryError(MemoryError):
    """CuPy's."""


class CUDARuntimeError(RuntimeError):
    """CuPy's."""


class CUDADriverError(RuntimeError):
    """CuPy's."""


class Memory:
    """What `cupy.cuda.alloc` returns."""

    def __init__(self, nbytes: int, stream: Any) -> None:
        self.content = np.full(nbytes + 256, 0xFF, np.uint8)  # NaN, in all floats
        self.ptr = -(-self.content.__array_interface__["data"][0] // 256) * 256
        self.stream = stream


class StandIn:
    """CuPy, as far as the driver uses it.

    Attributes:
        asked: what was asked for, in order: a name, and what with.
        free: bytes of memory left.
        pinnable: bytes that may be pinned at each of the next calls, the last one first; all after these.
        freed: times that the pool of pinned memory was emptied.
    """

    def __init__(self, version: int = 13000, driver: int = 13000, devices: int = 1) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.free = 1 << 30
        self.pinnable: list[int] = []
        self.freed = 0
        self.current: Any = None
        self.streams = 0
        self.gpu = 0  # CuPy's current device
        self.milliseconds = 0  # of the clock of events: each takes one
        self.is_hip = False
        self.kept: dict[int, list[Callable[[], None]]] = {}  # by stream that is captured
        owner = self

        class Stream:
            def __init__(self, *, non_blocking: bool = False) -> None:
                assert non_blocking
                owner.streams += 1
                self.ptr = 0x1000 * owner.streams

            def __enter__(self) -> None:
                self.before, owner.current = owner.current, self

            def __exit__(self, *error: object) -> None:
                owner.current = self.before

            def wait_event(self, event: Any) -> None:
                owner.asked.append(("wait", self, event))

            def begin_capture(self, mode: int) -> None:
                owner.asked.append(("begin capture", self, mode))
                owner.kept[self.ptr] = []

            def end_capture(self) -> Any:
                return Graph(owner.kept.pop(self.ptr))

        class Graph:
            def __init__(self, kept: list[Callable[[], None]]) -> None:
                self.kept = kept

            def upload(self, stream: Any) -> None:
                owner.asked.append(("upload", self, stream))

            def launch(self, stream: Any) -> None:
                owner.asked.append(("replay", self, stream))
                for do in self.kept:
                    do()

        class Event:
            done = False  # as far as anybody can tell who does not wait

            def __init__(self, *, disable_timing: bool = False) -> None:
                self.timed = not disable_timing

            def record(self, stream: Any) -> None:
                owner.milliseconds += 1
                self.at = owner.milliseconds
                owner.asked.append(("record", self, stream))

            def synchronize(self) -> None:
                owner.asked.append(("synchronize", self))

        emulator, functions = Emulator(), []

        class RawModule:
            def __init__(self, code: str, options: tuple[str, ...]) -> None:
                head = f'{HEADER.read_text()}\n#line 1 "kernels"\n'
                assert code.startswith(head)
                self.emulated = emulator.load(code.removeprefix(head))
                self.module = self

            def get_function(self, name: str) -> Any:
                functions.append(self.emulated(name))
                return SimpleNamespace(ptr=len(functions), module=self)

        def alloc(nbytes: int) -> Memory:
            assert not owner.kept, "a thread that captures cannot allocate"
            if nbytes > owner.free:
                raise OutOfMemoryError
            owner.free -= nbytes
            return Memory(nbytes, owner.current)

        def launch(*arguments: int) -> None:
            started("launch", *arguments)

        def started(name: str, *arguments: int) -> None:
            *grid, start, extra = arguments
            addresses = (ctypes.c_void_p * 16).from_address(start)
            values = [ctypes.c_longlong.from_address(address or 0).value for address in addresses]
            owner.asked.append((name, *grid, values, extra))
            if grid[0] <= len(functions):
                function = functions[grid[0] - 1]
                packed = struct.pack("16q", *values)
                owner.do(grid[8], lambda: function.emulate(function.address, grid[1], packed))

        def copy(target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
            owner.asked.append(("copy", nbytes, kind, stream))
            owner.do(stream, lambda: ctypes.memmove(target, source, nbytes))

        def fill(pointer: int, byte: int, nbytes: int, stream: int) -> None:
            owner.asked.append(("fill", pointer, nbytes, stream))
            owner.do(stream, lambda: ctypes.memset(pointer, byte, nbytes))

        def make_current(number: int) -> None:
            owner.gpu = number
            owner.asked.append(("device", number))

        def unowned(pointer: int, nbytes: int, holder: Any, device: int) -> Any:
            return SimpleNamespace(pointer=pointer, nbytes=nbytes, holder=holder, device=device)

        runtime = SimpleNamespace(
            getDevice=lambda: owner.gpu,
            setDevice=make_current,
            getDeviceCount=lambda: devices,
            getDeviceProperties=lambda number: {
                "name": b"Stand-in",
                "uuid": bytes([number]) * 16,
                "major": 9,
                "minor": 0,
            },
            deviceGetPCIBusId="0000:{:02}:00.0".format,
            runtimeGetVersion=lambda: version,
            driverGetVersion=lambda: driver,
            memGetInfo=lambda: (owner.free, 1 << 30),
            memcpyAsync=copy,
            memsetAsync=fill,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
            CUDARuntimeError=CUDARuntimeError,
            streamCaptureModeRelaxed=2,
            is_hip=False,
        )
        self.cuda = SimpleNamespace(
            runtime=runtime,
            driver=SimpleNamespace(launchKernel=launch, CUDADriverError=CUDADriverError),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            alloc=alloc,
            alloc_pinned_memory=self._pinned,
            get_current_stream=lambda: owner.current or Stream(non_blocking=True),
            Stream=Stream,
            Event=Event,
            get_elapsed_time=lambda first, last: float(first.timed and last.timed and last.at - first.at),
            UnownedMemory=unowned,
            MemoryPointer=lambda memory, offset: (memory, offset),
        )
        self.RawModule = RawModule
        self.get_default_pinned_memory_pool = lambda: SimpleNamespace(free_all_blocks=self._emptied)
        self.ndarray = lambda shape, dtype, memory: (shape, dtype, *memory)

    def _pinned(self, nbytes: int) -> bytearray:
        if self.pinnable and nbytes > self.pinnable.pop():
            raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
        return bytearray(nbytes)

    def _emptied(self) -> None:
        self.freed += 1

    def do(self, stream: int, what: Callable[[], Any]) -> None:
        """Do something now, or when the graph is replayed where the stream is captured."""
        self.kept[stream].append(what) if stream in self.kept else what()

    def asked_for(self, name: str) -> list[tuple[Any, ...]]:
        return [asked[1:] for asked in self.asked if asked[0] == name]


class Cublas:
    """cuBLAS: products of matrices that lie column by column, by NumPy. Its functions look at ctypes objects.

    Attributes:
        asked: names of functions, with their arguments after the handle.
    """

    def __init__(self, cupy: StandIn) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.status = 0
        self.cupy = cupy
        self.streams: dict[int, int] = {}  # by handle
        self.cublasGetStatusString = mock.Mock(return_value=b"CUBLAS_STATUS_NOT_SUPPORTED")

    def __getattr__(self, name: str) -> Any:
        def call(handle: Any, *arguments: Any) -> int:
            self.asked.append((name, *(getattr(a, "value", a) for a in arguments)))
            return self.status

        return call

    def cublasCreate_v2(self, handle: Any) -> int:
        handle._obj.value = 77 + len(self.streams)
        self.streams[handle._obj.value] = 0
        return self.status

    def cublasSetStream_v2(self, handle: Any, stream: Any) -> int:
        self.asked.append(("cublasSetStream_v2", stream.value))
        self.streams[handle.value] = stream.value
        return self.status

    def cublasGemmEx(self, handle: Any, *arguments: Any) -> int:
        ta, tb, m, n, k, alpha, a, kind_a, la, b, kind_b, lb, beta, c, kind_c, lc, compute, algorithm = (
            arguments
        )
        sa, sb, sc = (ctypes.c_longlong(0) for _ in "abc")
        batched = (ta, tb, m, n, k, alpha, a, kind_a, la, sa, b, kind_b, lb, sb, beta, c, kind_c, lc, sc, 1)
        return self.cublasGemmStridedBatchedEx(handle, *batched, compute, algorithm)

    def cublasGemmStridedBatchedEx(self, handle: Any, *arguments: Any) -> int:
        ta, tb, m, n, k, alpha, a, kind_a, la, sa, b, kind_b, lb, sb = arguments[:14]
        beta, c, kind_c, lc, sc, count, compute, algorithm = arguments[14:]
        assert handle.value in self.streams
        assert {type(word) for word in (alpha, beta, a, b, c)} == {ctypes.c_void_p}
        assert {type(word) for word in (sa, sb, sc)} == {ctypes.c_longlong}
        assert all(type(word) is int for word in (ta, tb, m, n, k, kind_a, la, lb, lc, count, compute))
        assert kind_a == kind_b == kind_c
        assert compute == COMPUTE_F8 if kind_a else compute in COMPUTE.values()
        assert algorithm == -1
        assert min(m, n, k, count) > 0
        assert la >= (k if ta else m)
        assert lb >= (n if tb else k)
        assert lc >= m
        dtype = ["float32", "float64"][kind_a]
        number = ctypes.c_double if kind_a else ctypes.c_float
        assert number.from_address(alpha.value).value == 1
        adds = number.from_address(beta.value).value
        self.asked.append(("gemm", compute))
        pointers = [word.value for word in (a, b, c)]
        steps = [word.value for word in (sa, sb, sc)]

        def multiply() -> None:
            for i in range(count):
                at = [
                    pointer + i * step * (4, 8)[kind_a] for pointer, step in zip(pointers, steps, strict=True)
                ]
                multiplied(dtype, at, (ta, tb), (m, n, k), (la, lb, lc), adds)

        self.cupy.do(self.streams[handle.value], multiply)
        return self.status

    def cublasGemmBatchedEx(self, handle: Any, *arguments: Any) -> int:
        ta, tb, m, n, k, alpha, a, kind_a, la, b, kind_b, lb = arguments[:12]
        beta, c, kind_c, lc, count, compute, algorithm = arguments[12:]
        assert {type(word) for word in (alpha, beta, a, b, c)} == {ctypes.c_void_p}
        assert (kind_a, kind_b, count, algorithm) == (kind_c, kind_c, 1, -1)
        assert compute == COMPUTE_F8 if kind_a else compute in COMPUTE.values()
        adds = (ctypes.c_double if kind_a else ctypes.c_float).from_address(beta.value).value
        self.asked.append(("gemm at", compute))

        def multiply() -> None:
            at = [ctypes.c_longlong.from_address(word.value).value for word in (a, b, c)]
            multiplied(["float32", "float64"][kind_a], at, (ta, tb), (m, n, k), (la, lb, lc), adds)

        self.cupy.do(self.streams[handle.value], multiply)
        return self.status


def multiplied(dtype: str, at: list[int], across: Any, extents: Any, leads: Any, adds: float) -> None:
    """Multiply matrices that lie column by column."""
    (ta, tb), (m, n, k), (la, lb, lc) = across, extents, leads
    left = columns(at[0], dtype, k if ta else m, m if ta else k, la)
    right = columns(at[1], dtype, n if tb else k, k if tb else n, lb)
    result = columns(at[2], dtype, m, n, lc)
    # OpenBLAS may set the flag by what lies beside strided matrices; results are compared anyway
    with np.errstate(invalid="ignore"):
        product = (left.T if ta else left) @ (right.T if tb else right)
    result[...] = product + result if adds else product


def columns(pointer: int, dtype: str, rows: int, count: int, lead: int) -> Any:
    """Return a matrix that lies column by column."""
    size = np.dtype(dtype).itemsize
    memory = (ctypes.c_char * (((count - 1) * lead + rows) * size)).from_address(pointer)
    return np.ndarray((rows, count), dtype, memory, 0, (size, lead * size))


def driver(
    precision: str = "fp32", cupy: StandIn | None = None, number: int | None = None
) -> tuple[CupyDriver, StandIn, Cublas]:
    cupy = cupy or StandIn()
    products = Cublas(cupy)
    with (
        mock.patch.object(cupy_driver, "check_compiler", lambda major: None),
        mock.patch.object(cupy_driver, "cublas", lambda major: products),
    ):
        return CupyDriver(cupy, precision, number), cupy, products
