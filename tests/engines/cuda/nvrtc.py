"""Compiling kernels with NVRTC, once per text and architecture; what is compiled is kept on the disk.

NVRTC is NVIDIA's compiler as a library: it needs no driver and no GPU. A text begins after ``device.h``, and
errors count lines from the text's own first one. A product and a sum may become one operation that rounds
once, as is NVRTC's default; the emulator rounds twice, so the two differ by rounding. There is no fast
mathematics.
"""

import contextlib
import ctypes
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from foldbatch.engines.cuda.driver import HEADER
from foldbatch.errors import BackendError
from foldbatch.system.cache import cache_directory, tidy_once, used, write_bytes

OPTIONS = ("--std=c++17", "--diag-suppress=177", "--ptxas-options=-v")  # 177: a function that no kernel calls
MAJORS = (13, 12)  # of CUDA, the versions that are looked for
MISTAKE = 6  # NVRTC's status when the text is wrong


@dataclass(frozen=True, slots=True)
class Compiled:
    """Kernels of one text, for one architecture.

    Attributes:
        code: what a GPU's driver loads; it also runs on later GPUs of the same first number.
        log: what the compiler said: warnings, and the resources of each kernel.
    """

    code: bytes
    log: str


class Nvrtc:
    """The library, of one version.

    Args:
        library: the loaded library.

    Attributes:
        version: as ``(13, 0)``.
        architectures: numbers of those that it compiles for, as ``90`` for ``sm_90``, in rising order.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        library.nvrtcGetSupportedArchs(numbers)
        self.version = (major.value, minor.value)
        self.architectures = tuple(sorted(numbers))

    def compile(self, source: str, architecture: str) -> Compiled:
        """Compile a text.

        Raises:
            AssertionError: when the text is wrong, with the lines that are.
            BackendError: when NVRTC cannot work.
        """
        whole = f'{HEADER.read_text()}\n#line 1 "kernels"\n{source}'
        options = [f"--gpu-architecture={architecture}", *OPTIONS]
        program = ctypes.c_void_p()
        self._checked("nvrtcCreateProgram", ctypes.byref(program), whole.encode(), b"device.h", 0, None, None)
        try:
            words = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
            status = self._library.nvrtcCompileProgram(program, len(options), words)
            log = self._output("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
            assert status != MISTAKE, f"NVRTC for {architecture}:\n{log}"
            if status:
                raise self._error("nvrtcCompileProgram", status, log)
            return Compiled(self._output("CUBIN", program), log)
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _output(self, name: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._checked(f"nvrtcGet{name}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._checked(f"nvrtcGet{name}", program, text)
        return text.raw

    def _checked(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise self._error(name, status)

    def _error(self, name: str, status: int, log: str = "") -> BackendError:
        said = (log.strip() or self._library.nvrtcGetErrorString(status).decode()).replace("\n", " ")
        fix = "install nvidia-cuda-nvrtc anew, or another version of it"
        return BackendError("backend cuda", f"NVRTC's {name} to work", said, fix)


@cache
def nvrtc(major: int | None = None) -> Nvrtc:
    """Return NVRTC, of one version of CUDA where that is named.

    It is looked for among the libraries in use, in the wheel ``nvidia-cuda-nvrtc``, below ``$CUDA_HOME``,
    ``$CUDA_PATH`` and ``/usr/local/cuda``, and where the system keeps its libraries.

    Raises:
        BackendError: when there is none.
    """
    for path, mode in _places(MAJORS if major is None else (major,)):
        try:
            return Nvrtc(ctypes.CDLL(path, mode=mode))
        except OSError:
            continue
    wanted = "NVRTC" if major is None else f"NVRTC of CUDA {major}"
    package = "nvidia-cuda-nvrtc-cu12" if major == 12 else "nvidia-cuda-nvrtc"
    raise BackendError("backend cuda", f"{wanted}, which compiles kernels", "none", f"pip install {package}")


def _places(majors: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Yield paths where NVRTC may be, and how to open them."""
    names = [f"libnvrtc.so.{major}" for major in majors]
    for name in names:
        yield name, os.RTLD_NOW | os.RTLD_NOLOAD
    wheels = find_spec("nvidia")
    for root in (wheels.submodule_search_locations or ()) if wheels is not None else ():
        for major, name in zip(majors, names, strict=True):
            for directory in (f"cu{major}", "cuda_nvrtc"):
                yield str(Path(root, directory, "lib", name)), os.RTLD_NOW
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for home in filter(None, homes):
        for name in names:
            for directory in ("lib64", "lib"):
                yield str(Path(home, directory, name)), os.RTLD_NOW
    for name in names:
        yield name, os.RTLD_NOW


def architecture(capability: tuple[int, int], known: Sequence[int]) -> str:
    """Return the architecture to compile for, of those that NVRTC knows, as code for it runs on a GPU.

    Args:
        capability: the GPU's, as ``(9, 0)``.
        known: numbers of architectures, as ``90``.

    Raises:
        BackendError: when none fits.

    >>> architecture((9, 0), [80, 86, 89, 90, 100]), architecture((10, 3), [90, 100, 120])
    ('sm_90', 'sm_100')
    """
    major, minor = capability
    fitting = [number for number in known if number // 10 == major and number % 10 <= minor]
    if not fitting:
        fix = "install another version of nvidia-cuda-nvrtc, or take the backend llvm"
        found = ", ".join(f"{number / 10}" for number in known)
        raise BackendError(
            "backend cuda", f"NVRTC for GPUs of compute capability {major}.{minor}", f"one for {found}", fix
        )
    return f"sm_{max(fitting)}"


def compiled(source: str, architecture: str, major: int | None = None) -> Compiled:
    """Return the kernels of a text, from the disk or compiled now.

    Args:
        source: the text.
        architecture: as ``sm_90``.
        major: the version of CUDA whose NVRTC compiles.

    Raises:
        AssertionError: when the text is wrong, with the lines that are.
        BackendError: when there is no NVRTC.
    """
    library = nvrtc(major)
    basis = repr((HEADER.read_text(), source, architecture, OPTIONS, library.version))
    name = f"cubin_{hashlib.sha256(basis.encode()).hexdigest()[:32]}"
    return _kept(name, lambda: library.compile(source, architecture))


def _kept(name: str, make: Callable[[], Compiled]) -> Compiled:
    """Return an entry of the cache on disk; where there is none, or no cache, make it."""
    directory = cache_directory()
    if directory is None:
        return make()
    path, beside = directory / f"{name}.cubin", directory / f"{name}.log"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        code = path.read_bytes()
        digest, _, log = beside.read_text().partition("\n")
        if digest == hashlib.sha256(code).hexdigest():  # else a file is damaged
            used(path)
            return Compiled(code, log)
    made = make()
    tidy_once(directory)
    write_bytes(path, made.code)
    write_bytes(beside, f"{hashlib.sha256(made.code).hexdigest()}\n{made.log}".encode())
    return made
