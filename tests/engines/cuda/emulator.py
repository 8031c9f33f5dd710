"""A driver that runs kernels on the CPU, from the same texts, compiled by the C compiler: for tests."""

import ctypes
import hashlib
import itertools
import re
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from foldbatch.engines.cuda.driver import ARGUMENTS, HEADER, MAX_THREADS, MatrixProduct
from foldbatch.errors import BackendError
from foldbatch.params.parameters import Array
from foldbatch.system.cache import cache_directory
from tests.engines.cuda.spans import array_at, span_of

HERE = Path(__file__).parent
ALIGNMENT = 256

# Milliseconds to compile nine kernels, 180 lines, by gcc 12: 93 with -O1, 72 with -Og, 66 with -O0.
# Without math.h 10 less (see emulator.h), without the start files (-nostdlib) 6 less: 49 as here. The linker
# gold takes 2 more than bfd; leaving out -lm saves 1. Nanoseconds an element of an LSTM's gates: 85 with -O0,
# 66 with -Og, 65 with -O1.
OPTIONS = (
    *("-Og", "-pipe", "-std=gnu11", "-shared", "-fPIC", "-nostdlib"),
    *("-ffp-contract=off", "-fno-asynchronous-unwind-tables", "-Werror=implicit-function-declaration"),
)

_KERNEL = re.compile(r"\bKERNEL(_WIDE)?\s+(\w+)\s*\(([^)]*)\)")
_THREADS = {"": 256, "_WIDE": MAX_THREADS}  # of a block, at most; see device.h
_STREAMS = itertools.count(1)
_KEPT: dict[int, list[Callable[[], object]]] = {}  # by stream that is captured now


def parameters(source: str) -> dict[str, int]:
    """Return the number of parameters of each kernel of a text.

    >>> parameters("KERNEL none() {} KERNEL two(i8 a, i8 b) {}")
    {'none': 0, 'two': 2}
    """
    return {name: listed.count(",") + bool(listed.strip()) for _, name, listed in _KERNEL.findall(source)}


class HostBuffer:
    """Memory of the host in the place of the device's; see `driver.Buffer`."""

    __slots__ = ("__weakref__", "_memory", "nbytes", "pointer")

    def __init__(self, nbytes: int) -> None:
        self._memory = np.empty(nbytes + ALIGNMENT, np.uint8)
        self.pointer = -(-span_of(self._memory).pointer // ALIGNMENT) * ALIGNMENT
        self.nbytes = nbytes

    def array(self, shape: tuple[int, ...], dtype: str) -> Array:
        start = self.pointer - span_of(self._memory).pointer
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self._memory[start : start + nbytes].view(dtype).reshape(shape)


class HostFunction(NamedTuple):
    """A kernel that runs on the CPU.

    Attributes:
        emulate: runs it; a function of C.
        address: of the kernel.
        pack: makes the bytes of its arguments; an error where their number is wrong.
        threads: of a block, at most.
    """

    emulate: Callable[[int, int, bytes], None]
    address: int
    pack: Callable[..., bytes]
    threads: int


class HostModule:
    """Compiled kernels; see `driver.Driver.load`."""

    def __init__(self, path: Path, source: str) -> None:
        # PyDLL keeps Python's lock while a kernel runs: the number of its block is in static memory.
        self._library = ctypes.PyDLL(str(path))
        self._parameters = parameters(source)
        self._threads = {name: _THREADS[wide] for wide, name, _ in _KERNEL.findall(source)}
        self._emulate: Any = self._library.emulate
        self._emulate.argtypes = (ctypes.c_void_p, ctypes.c_longlong, ctypes.c_char_p)
        self._emulate.restype = None

    def __call__(self, name: str) -> HostFunction:
        count = self._parameters[name]
        assert count <= ARGUMENTS, f"{name}: {count} parameters"
        address = ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value
        assert address is not None
        pack = struct.Struct(f"{count}q{8 * (ARGUMENTS - count)}x").pack
        return HostFunction(self._emulate, address, pack, self._threads[name])


class HostClock:
    """The clock of a driver that does at once what it is asked."""

    def mark(self, stream: Any) -> float:
        return time.perf_counter()

    def seconds(self, mark: float) -> float:
        return mark


class Emulator:
    """A driver whose device is the CPU; see `driver.Driver`. Everything is done when it is enqueued."""

    name = "the CPU, emulating a GPU"
    identity = ""

    def enqueue(self, stream: Any, do: Callable[..., object], *arguments: Any) -> None:
        """Call a function now, or each time that a graph is replayed where the stream is captured."""
        kept = _KEPT.get(stream)
        if kept is None:
            do(*arguments)
        else:
            kept.append(partial(do, *arguments))

    def allocate(self, nbytes: int) -> HostBuffer:
        return HostBuffer(nbytes)

    def pinned(self, nbytes: int) -> Array:
        return np.empty(nbytes, np.uint8)

    def stream(self) -> int:
        return next(_STREAMS)

    def event(self) -> int:
        return 0

    def record(self, event: Any, stream: Any) -> None:
        pass

    def wait(self, stream: Any, event: Any) -> None:
        pass

    def synchronize(self, event: Any) -> None:
        pass

    def copy_in(self, pointer: int, source: Array, stream: Any) -> None:
        self.enqueue(stream, ctypes.memmove, pointer, *span_of(source))

    def copy_out(self, target: Array, pointer: int, stream: Any) -> None:
        self.enqueue(stream, ctypes.memmove, span_of(target).pointer, pointer, target.nbytes)

    def copy(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        self.enqueue(stream, ctypes.memmove, target, source, nbytes)

    def fill(self, pointer: int, byte: int, nbytes: int, stream: Any) -> None:
        self.enqueue(stream, ctypes.memset, pointer, byte, nbytes)

    def load(self, source: str) -> HostModule:
        return _load(source)

    def launch(
        self,
        function: HostFunction,
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
        stream: Any,
    ) -> None:
        assert blocks > 0, "a GPU refuses to run no block"
        emulate, address, pack, limit = function
        assert 0 < threads[0] * threads[1] <= limit, f"a GPU refuses to run {threads} threads"
        self.enqueue(stream, emulate, address, blocks, pack(*arguments))

    def multiply(self, product: MatrixProduct, stream: Any) -> None:
        self.enqueue(stream, _multiplied, product)

    def begin_capture(self, stream: Any) -> None:
        assert stream not in _KEPT, "the stream is captured already"
        _KEPT[stream] = []

    def end_capture(self, stream: Any) -> list[Callable[[], object]]:
        return _KEPT.pop(stream)

    def replay(self, graph: list[Callable[[], object]], stream: Any) -> None:
        for do in graph:
            self.enqueue(stream, do)

    def clock(self, stream: Any) -> HostClock:
        return HostClock()

    def array(self, buffer: HostBuffer, shape: tuple[int, ...], dtype: str) -> Array:
        return buffer.array(shape, dtype)


def _multiplied(p: MatrixProduct) -> None:
    if p.count * p.m * p.n:
        a = _matrices(p.a, p, p.a_step, (p.k, p.m) if p.a_across else (p.m, p.k), p.a_lead)
        b = _matrices(p.b, p, p.b_step, (p.n, p.k) if p.b_across else (p.k, p.n), p.b_lead)
        c = _matrices(p.c, p, p.c_step, (p.m, p.n), p.c_lead)
        a = a.transpose(0, 2, 1) if p.a_across else a
        b = b.transpose(0, 2, 1) if p.b_across else b
        with np.errstate(all="ignore"):  # a GPU does not warn of numbers that are none
            if p.adds:
                c += a @ b
            else:
                np.matmul(a, b, out=c)


def _matrices(pointer: int, product: MatrixProduct, step: int, shape: tuple[int, int], lead: int) -> Array:
    size = np.dtype(product.dtype).itemsize
    return array_at(pointer, (product.count, *shape), (step * size, lead * size, size), product.dtype)


@cache
def _load(source: str) -> HostModule:
    """Compile a text, or read from the disk what was compiled of it.

    Threads and processes that do so at the same time may each compile it; none sees half of a file.
    """
    text = "\n".join([(HERE / "emulator.h").read_text(), HEADER.read_text(), source])
    name = f"emulated_{hashlib.sha256(repr((text, OPTIONS)).encode()).hexdigest()[:32]}.so"
    directory = cache_directory()
    if directory is not None:
        with suppress(OSError):  # it is not there, or no library
            return HostModule(directory / name, source)
        with suppress(OSError):  # the directory cannot be written to
            made = directory / f"{name}.{uuid4().hex}.tmp"
            _compile(text, made)
            return HostModule(made.replace(directory / name), source)
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary, name)
        _compile(text, made)
        return HostModule(made, source)


def _compile(text: str, path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise BackendError(
            "backend cuda-on-cpu", "a C compiler", "none", "install gcc, or take the backend numpy"
        )
    path.touch()  # an error of the operating system, and not of the compiler, where that is impossible
    done = subprocess.run(
        [compiler, *OPTIONS, "-xc", "-", "-o", str(path), "-lm"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        path.unlink()
        raise AssertionError(f"{done.stderr}\n{text}")


def load_driver() -> Emulator:
    return Emulator()
