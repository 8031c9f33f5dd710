"""A driver that runs kernels on the CPU, from the same texts, compiled by the C compiler: for tests."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from foldbatch.cache import cache_directory
from foldbatch.engines.cuda.driver import ARGUMENTS, Product, Touched
from foldbatch.errors import BackendError
from foldbatch.params import Array

HERE = Path(__file__).parent
OPTIONS = ("-O1", "-std=gnu11", "-shared", "-fPIC", "-ffp-contract=off", "-w")
ALIGNMENT = 256


class HostBuffer:
    """Memory of the host in the place of the device's; see `driver.Buffer`."""

    __slots__ = ("_memory", "nbytes", "pointer")

    def __init__(self, nbytes: int) -> None:
        self._memory = np.empty(nbytes + ALIGNMENT, np.uint8)
        address: int = self._memory.__array_interface__["data"][0]
        self.pointer = -(-address // ALIGNMENT) * ALIGNMENT
        self.nbytes = nbytes


class HostModule:
    """Compiled kernels; see `driver.Module`."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self.emulate = self._library.emulate
        self.emulate.argtypes = (ctypes.c_void_p, ctypes.c_longlong, ctypes.c_void_p)
        self.emulate.restype = None

    def function(self, name: str) -> tuple[Any, int]:
        """Return a kernel by name: what runs it, and its address."""
        address = ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value
        assert address is not None
        return self.emulate, address


class Emulator:
    """A driver whose device is the CPU; see `driver.Driver`. Everything is done when it is enqueued."""

    name = "the CPU, emulating a GPU"
    recording = False

    def allocate(self, nbytes: int) -> HostBuffer:
        return HostBuffer(nbytes)

    def pinned(self, nbytes: int) -> Array:
        return np.empty(nbytes, np.uint8)

    def stream(self) -> int:
        return 0

    def event(self) -> int:
        return 0

    def record(self, event: Any, stream: Any) -> None:
        pass

    def wait(self, stream: Any, event: Any) -> None:
        pass

    def synchronize(self, event: Any) -> None:
        pass

    def copy_in(self, pointer: int, source: Array, stream: Any) -> None:
        ctypes.memmove(pointer, _address(source), source.nbytes)

    def copy_out(self, target: Array, pointer: int, stream: Any) -> None:
        ctypes.memmove(_address(target), pointer, target.nbytes)

    def copy(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        ctypes.memmove(target, source, nbytes)

    def fill(self, pointer: int, byte: int, nbytes: int, stream: Any) -> None:
        ctypes.memset(pointer, byte, nbytes)

    def load(self, source: str) -> HostModule:
        return _load(source)

    def launch(
        self,
        function: tuple[Any, int],
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
        stream: Any,
        touched: Callable[[], Touched] | None = None,
    ) -> None:
        emulate, address = function
        told = np.zeros(ARGUMENTS, np.int64)
        told[: len(arguments)] = arguments
        emulate(address, blocks, _address(told))

    def multiply(self, product: Product, stream: Any) -> None:
        p = product
        a = _matrices(p.a, p.dtype, p.count, p.a_step, p.k if p.a_across else p.m, p.m if p.a_across else p.k, p.a_lead)
        b = _matrices(p.b, p.dtype, p.count, p.b_step, p.n if p.b_across else p.k, p.k if p.b_across else p.n, p.b_lead)
        c = _matrices(p.c, p.dtype, p.count, p.c_step, p.m, p.n, p.c_lead)
        a = a.transpose(0, 2, 1) if p.a_across else a
        b = b.transpose(0, 2, 1) if p.b_across else b
        if p.adds:
            c += a @ b
        else:
            c[...] = a @ b

    def array(self, buffer: HostBuffer, shape: tuple[int, ...], dtype: str) -> Array:
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        start = buffer.pointer - buffer._memory.__array_interface__["data"][0]
        return buffer._memory[start : start + count].view(dtype).reshape(shape)


def _matrices(pointer: int, dtype: str, count: int, step: int, rows: int, columns: int, lead: int) -> Array:
    """Return matrices in memory: ``[count, rows, columns]``."""
    size = np.dtype(dtype).itemsize
    if not count * rows * columns:
        return np.zeros((count, rows, columns), dtype)
    extent = (count - 1) * step + (rows - 1) * lead + columns
    memory = (ctypes.c_char * (extent * size)).from_address(pointer)
    flat = np.frombuffer(memory, dtype)
    return np.ndarray((count, rows, columns), dtype, flat, 0, (step * size, lead * size, size))


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


@cache
def _load(source: str) -> HostModule:
    """Compile a text, or read from the disk what was compiled of it."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise BackendError("backend cuda-on-cpu", "a C compiler", "none", "install gcc, or take the backend numpy")
    text = "\n".join([(HERE / "emulator.h").read_text(), (HERE / "device.h").read_text(), source])
    name = f"emulated_{hashlib.sha256(repr((text, OPTIONS)).encode()).hexdigest()[:32]}.so"
    directory = cache_directory()
    kept = None if directory is None else directory / name
    if kept is not None and kept.exists():
        return HostModule(str(kept))
    with tempfile.TemporaryDirectory() as temporary:
        code, made = Path(temporary, "kernels.c"), Path(temporary, name)
        code.write_text(text)
        done = subprocess.run(  # noqa: S603 - the text is our own
            [compiler, *OPTIONS, str(code), "-o", str(made), "-lm"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{done.stderr}\n{text}"
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            beside = kept.with_suffix(f".{os.getpid()}.tmp")
            shutil.copy(made, beside)
            beside.rename(kept)
            return HostModule(str(kept))
        return HostModule(str(made))


def load_driver() -> Emulator:
    """Return the driver."""
    return Emulator()
