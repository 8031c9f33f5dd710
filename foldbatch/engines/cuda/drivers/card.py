"""Whether there is a GPU to compute on, and a sentence on what is missing."""

from __future__ import annotations

import ctypes
import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from foldbatch.errors import BackendError

OTHERWISE = "or take the backend numba"
DRIVER = "libcuda.so.1"  # NVIDIA's driver, as far as programs see it
NO_DEVICE = 100  # the driver's status when there is no GPU
DRIVERS = {12: "525.60", 13: "580"}  # by version of CUDA, the first driver for it


def check() -> Any:
    """Return CuPy, where it, the driver and a GPU are there and fit each other.

    Raises:
        BackendError: where they do not: what is missing, and what to do.
    """
    if find_spec("cupy") is None:
        extra = "cuda12" if _version_of_driver() // 1000 == 12 else "cuda13"
        raise _error("CuPy to be installed", "none", f"pip install 'foldbatch[{extra}]', {OTHERWISE}")
    _devices()
    try:
        cupy, runtime = import_module("cupy"), import_module("cupy_backends.cuda.api.runtime")
    except ImportError as error:
        said = str(error).strip().partition("\n")[0]
        raise _error("CuPy to work", said, f"install CuPy anew: {_pip()}, {OTHERWISE}") from None
    if runtime.is_hip:
        fix = f"pip uninstall cupy, then {_pip()}, {OTHERWISE}"
        raise _error("CuPy for CUDA", "CuPy for ROCm", fix)
    there, needed = _version_of_driver(), runtime.runtimeGetVersion()
    if there // 1000 < needed // 1000:
        first = DRIVERS.get(needed // 1000)
        expected = f"a driver for CUDA {needed // 1000}" + (f" ({first} or later)" if first else "")
        fix = f"update the driver, or pip uninstall the CuPy there is, then {_pip()}"
        raise _error(f"{expected}, which CuPy is made for", f"one for CUDA {_written(there)}", fix)
    try:
        runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise _error(
            "CuPy to reach the GPU", str(error), f"run nvidia-smi and mend what it says, {OTHERWISE}"
        ) from None
    return cupy


def check_compiler(major: int) -> None:
    """Raise an error where CuPy finds no NVRTC, which compiles kernels.

    Raises:
        BackendError: when there is none.
    """
    try:
        import_module("cupy_backends.cuda.libs.nvrtc").getVersion()
    except (ImportError, OSError, RuntimeError) as error:
        raise _missing("NVRTC", major, error) from None


def cublas(major: int) -> Any:
    """Return cuBLAS of a version of CUDA, loaded by ctypes.

    Raises:
        BackendError: when there is none.
    """
    try:
        import_module("cupy_backends.cuda.libs").cublas  # noqa: B018 - CuPy knows best where it is, and loads it
        return ctypes.CDLL(f"libcublas.so.{major}")
    except (ImportError, OSError) as error:
        raise _missing("cuBLAS", major, error) from None


def _missing(library: str, major: int, error: Exception) -> BackendError:
    said = str(error).strip().partition("\n")[0]
    return _error(f"{library} of CUDA {major}", said, f"pip install 'foldbatch[cuda{major}]'")


def _devices() -> int:
    """Return how many GPUs there are.

    Raises:
        BackendError: when there is no driver, or no GPU.
    """
    library = _driver()
    if library is None:
        raise _error("NVIDIA's driver", f"no {DRIVER}", f"install the driver, {OTHERWISE}")
    count = ctypes.c_int()
    status = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))
    if status in (0, NO_DEVICE) and not count.value:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            raise _error("a GPU", "none", f"see whether nvidia-smi lists one, {OTHERWISE}")
        found = f"none, with CUDA_VISIBLE_DEVICES={visible!r}"
        raise _error("a GPU", found, f"set CUDA_VISIBLE_DEVICES to 0, {OTHERWISE}")
    if status:
        text = ctypes.c_char_p()
        library.cuGetErrorString(status, ctypes.byref(text))
        said = (text.value or b"an unknown error").decode()
        found = f"{said!r} (error {status})"
        raise _error("NVIDIA's driver to start", found, f"run nvidia-smi and mend what it says, {OTHERWISE}")
    return count.value


def _driver() -> Any:
    """Return NVIDIA's driver, or None."""
    try:
        return ctypes.CDLL(DRIVER)
    except OSError:
        return None


def _version_of_driver() -> int:
    """Return the version of CUDA that the driver is made for, as 12040 for 12.4; 0 where there is none."""
    library, version = _driver(), ctypes.c_int()
    if library is not None:
        library.cuDriverGetVersion(ctypes.byref(version))
    return version.value


def _pip() -> str:
    major = _version_of_driver() // 1000
    return f"pip install 'foldbatch[{'cuda12' if major == 12 else 'cuda13'}]'"


def _written(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _error(expected: str, found: str, fix: str) -> BackendError:
    return BackendError("backend cuda", expected, found, fix)
