"""A driver that runs kernels on the CPU from the PTX that NVRTC makes of them, and watches all memory of the device."""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple
from unittest import mock
from weakref import finalize

import numpy as np

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.driver import HEADER, MatrixProduct
from foldbatch.engines.cuda.engine import CudaEngine
from foldbatch.engines.engine import DEFAULTS, LAUNCHES, Backend, EngineSettings
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array
from foldbatch.system.cache import cache_directory, read_sealed, tidy_once, write_sealed
from tests.engines.cuda.emulator import Emulator, HostBuffer
from tests.engines.cuda.nvrtc import MISTAKE, nvrtc
from tests.ptx import NAME
from tests.ptx.decode import Kernel, Text, decoded, taken_apart
from tests.ptx.machine import PtxFaultError, execute, library

ARCHITECTURES = ("compute_80", "compute_90", "compute_100")
ARCHITECTURE = "compute_90"
OPTIONS = ("--std=c++17", "--diag-suppress=177")  # those of nvrtc.OPTIONS that concern PTX
QUICK = ("--Ofast-compile=min",)  # of NVRTC 13: a third of the time, and PTX that is optimized less
_KERNEL = re.compile(r"\bKERNEL(?:_WIDE|_TOGETHER)?\s+(\w+)\s*\(")
_FIRST = re.compile(r"^(?=KERNEL)", re.MULTILINE)


def ptx_of(source: str, architecture: str = ARCHITECTURE) -> str:
    """Return the PTX of a text that begins after ``device.h``, compiled now or read from the disk.

    Raises:
        AssertionError: when the text is wrong, with the lines that are.
        BackendError: when there is no NVRTC.
    """
    found = nvrtc()
    whole = f'{HEADER.read_text()}\n#line 1 "kernels"\n{source}'
    basis = repr((whole, architecture, OPTIONS, found.version))
    directory, name = cache_directory(), f"ptx_{hashlib.sha256(basis.encode()).hexdigest()[:32]}.ptx"
    kept = None if directory is None else read_sealed(directory / name)
    if kept is not None:
        return kept.decode()
    made = _compiled(found, whole, architecture)
    if directory is not None:
        tidy_once(directory)
        write_sealed(directory / name, made.encode())
    return made


def _compiled(found: Any, whole: str, architecture: str) -> str:
    program = ctypes.c_void_p()
    found._checked("nvrtcCreateProgram", ctypes.byref(program), whole.encode(), b"device.h", 0, None, None)
    try:
        options = [f"--gpu-architecture={architecture}", *OPTIONS]
        words = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        status = found._library.nvrtcCompileProgram(program, len(options), words)
        log = found._output("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
        assert status != MISTAKE, f"NVRTC for {architecture}:\n{log}"
        assert not status, log
        return str(found._output("PTX", program).rstrip(b"\0").decode())
    finally:
        found._library.nvrtcDestroyProgram(ctypes.byref(program))


class Memory(HostBuffer):
    """Memory of the device that the machine knows until nobody holds it any more."""

    __slots__ = ()

    def __init__(self, nbytes: int) -> None:
        super().__init__(nbytes)
        library().memory_add(self.pointer, nbytes)
        finalize(self, library().memory_remove, self.pointer)

    def array(self, shape: tuple[int, ...], dtype: str) -> Array:
        library().memory_touch(self.pointer, self.nbytes, 1)  # whoever has the array may write to it
        return super().array(shape, dtype)


class PtxFunction(NamedTuple):
    """A kernel that is decoded when it is launched first.

    Attributes:
        ptx: where it is.
        name: its name there.
    """

    ptx: Ptx
    name: str


class Ptx:
    """Kernels of one text of PTX, and the memory of its variables."""

    def __init__(self, ptx: str) -> None:
        self.text: Text = taken_apart(ptx)
        self._kernels: dict[str, Kernel] = {}
        self._memory: dict[str, Memory] = {}
        for name, content in self.text.variables.items():
            self._memory[name] = memory = Memory(len(content))
            memory.array((len(content),), "uint8")[:] = np.frombuffer(content, np.uint8)

    def kernel(self, name: str) -> Kernel:
        """Return a kernel, decoded once."""
        if name not in self._kernels:
            addresses = {variable: memory.pointer for variable, memory in self._memory.items()}
            self._kernels[name] = decoded(self.text, name, addresses)
        return self._kernels[name]


class PtxModule(NamedTuple):
    """Kernels by name; see `driver.Driver.load`."""

    functions: Mapping[str, PtxFunction]

    def __call__(self, name: str) -> PtxFunction:
        return self.functions[name]


# by text, architecture and options: many programs have the same kernels
_MADE: dict[tuple[str, str, tuple[str, ...]], PtxFunction] = {}


@contextmanager
def compiled_quickly() -> Iterator[None]:
    """Return a context in which kernels are compiled in less time, where NVRTC can, and so otherwise than for GPUs."""
    with mock.patch(f"{__name__}.OPTIONS", OPTIONS + QUICK * (nvrtc().version >= (13, 0))):
        yield


def loaded(source: str, architecture: str = ARCHITECTURE) -> PtxModule:
    """Return the kernels of a text; those that are new are compiled together.

    Kernels that differ by numbers in their names alone are the same.
    """
    head, *pieces = _FIRST.split(source)
    names = [match[1] for match in _KERNEL.finditer(source)]
    assert len(names) == len(pieces), "a kernel begins its line"
    texts = []
    for name, piece in zip(names, pieces, strict=True):
        text = re.sub(rf"\b{name}\b", "NAMED", piece)
        digest = hashlib.sha256((head + text).encode()).hexdigest()[:16]
        texts.append(text.replace("NAMED", f"{name.rstrip('0123456789_')}_{digest}"))
    how = architecture, OPTIONS
    new = [text for text in dict.fromkeys(texts) if (text, *how) not in _MADE]
    if new:
        ptx = Ptx(ptx_of(head + "".join(new), architecture))
        assert len(ptx.text.kernels) == len(new)
        for text, name in zip(new, (_KERNEL.search(text)[1] for text in new), strict=True):  # type: ignore[index]
            _MADE[text, *how] = PtxFunction(ptx, name)
    return PtxModule({name: _MADE[text, *how] for name, text in zip(names, texts, strict=True)})


class PtxDriver(Emulator):
    """A driver whose kernels are PTX.

    Args:
        architecture: for which PTX is made.
        seed: decides the orders of blocks and of warps.

    Attributes:
        launches: how many kernels were run.
        instructions: how many instructions their threads executed.
    """

    name = "the CPU, executing PTX"

    def __init__(self, architecture: str = ARCHITECTURE, seed: int = 0) -> None:
        self.architecture = architecture
        self.seed = seed
        self.launches = self.instructions = 0

    def allocate(self, nbytes: int) -> Memory:
        return Memory(nbytes)

    def load(self, source: str) -> Any:
        return loaded(source, self.architecture)

    def launch(
        self,
        function: PtxFunction,
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
        stream: Any,
    ) -> None:
        self.enqueue(stream, self._run, function, blocks, threads, tuple(arguments))

    def _run(
        self, function: PtxFunction, blocks: int, threads: tuple[int, int], arguments: tuple[int, ...]
    ) -> None:
        self.launches += 1
        kernel = function.ptx.kernel(function.name)
        self.instructions += execute(kernel, blocks, threads, arguments, self.seed + self.launches)

    def copy_in(self, pointer: int, source: Array, stream: Any) -> None:
        self.enqueue(stream, _touched, "copy", pointer, source.nbytes, True)
        super().copy_in(pointer, source, stream)

    def copy_out(self, target: Array, pointer: int, stream: Any) -> None:
        self.enqueue(stream, _touched, "copy", pointer, target.nbytes, None)
        super().copy_out(target, pointer, stream)

    def copy(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        self.enqueue(stream, _touched, "copy", source, nbytes, None)
        self.enqueue(stream, _touched, "copy", target, nbytes, True)
        super().copy(target, source, nbytes, stream)

    def fill(self, pointer: int, byte: int, nbytes: int, stream: Any) -> None:
        self.enqueue(stream, _touched, "fill", pointer, nbytes, True)
        super().fill(pointer, byte, nbytes, stream)

    def multiply(self, product: MatrixProduct, stream: Any) -> None:
        self.enqueue(stream, _watched, product)
        super().multiply(product, stream)


def _touched(what: str, pointer: int, nbytes: int, writes: bool | None) -> None:
    """Check what is no kernel; where `writes` is None, bytes that nobody wrote may be read."""
    wrong = library().memory_touch(pointer, nbytes, bool(writes))
    if wrong == 1 or (wrong == 2 and writes is not None):
        kind = "out of bounds of global memory" if wrong == 1 else "read of memory that nobody wrote"
        raise PtxFaultError(kind, f"{what}: {kind}, {nbytes} bytes from address {pointer:#x} on")


def _watched(p: MatrixProduct) -> None:
    """Check the matrices of products row by row.

    There may be gaps between rows of calls. So a row of A that nobody wrote makes a row of C that nobody wrote, and so
    does a row of C that nobody wrote where a product adds to it. Of many products, a B or a transposed A that nobody wrote belongs to such a call. Rows that one product adds up must be
    there.
    """
    if not p.count * p.m * p.n:
        return
    item = np.dtype(p.dtype).itemsize
    rows, length = (p.n, p.k) if p.b_across else (p.k, p.n)
    for one in range(p.count):
        a, b, c = (
            start + item * one * step for start, step in ((p.a, p.a_step), (p.b, p.b_step), (p.c, p.c_step))
        )
        each = [_written(b + item * row * p.b_lead, item * length, p.count > 1) for row in range(rows)]
        if p.a_across:
            each += [_written(a + item * row * p.a_lead, item * p.m, p.count > 1) for row in range(p.k)]
        for row in range(p.m):
            known = all(each) and (p.a_across or _written(a + item * row * p.a_lead, item * p.k, True))
            pointer = c + item * row * p.c_lead
            if p.adds:  # what is in a gap stays there, also where A has zeros or an earlier level's numbers
                known = _written(pointer, item * p.n, True) and known
            _touched("product", pointer, item * p.n, True if known else None)


def _written(pointer: int, nbytes: int, gaps: bool) -> bool:
    """Whether somebody wrote bytes that a product reads; where no gaps may be, an error tells that nobody did."""
    _touched("product", pointer, nbytes, None if gaps else False)
    return library().memory_touch(pointer, nbytes, 0) == 0


@cache
def device() -> Device:
    """Return the device of the backend ``cuda-on-ptx``."""
    return Device(PtxDriver())


def load(model: Model, settings: EngineSettings = DEFAULTS) -> CudaEngine:
    """Return the engine for a model; ``auto`` is straight, as on the emulator."""
    way = "straight" if settings.launch == "auto" else settings.launch
    precision = settings.precision if settings.precision == "mixed" else ""
    return CudaEngine(NAME, model, device(), launch=way, debug=settings.debug, precision=precision)


BACKEND = Backend(load, precisions=("fp32", "mixed"), launches=LAUNCHES)
