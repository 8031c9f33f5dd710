"""Whether there is a GPU to compute on, and a sentence on what is missing."""

from __future__ import annotations

import ctypes
import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from foldbatch.errors import BackendError
from foldbatch.system.extras import install

OTHERWISE = "or take the backend llvm"
DRIVERS = {12: "525.60", 13: "580"}  # by version of CUDA, the first driver for it
INSTALL = f"{install('cuda13')}, or the extra cuda12 where the driver is older than 580"


def check() -> Any:
    """Return CuPy, where it, the driver and a GPU are there and fit each other.

    Raises:
        BackendError: where they do not: what is missing, and what to do.
    """
    if find_spec("cupy") is None:
        raise _error("CuPy to be installed", "none", f"{INSTALL}; {OTHERWISE}")
    try:
        cupy, runtime = import_module("cupy"), import_module("cupy_backends.cuda.api.runtime")
    except ImportError as error:
        raise _error("CuPy to work", _said(error), f"install CuPy anew: {INSTALL}; {OTHERWISE}") from None
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
        found = f"one for CUDA {there // 1000}.{there % 1000 // 10}"
        raise _error(f"{expected}, which CuPy is made for", found, fix)
    try:
        runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        found = str(error) + (f", with CUDA_VISIBLE_DEVICES={visible!r}" if visible is not None else "")
        raise _error("a GPU", found, f"run nvidia-smi and mend what it says, {OTHERWISE}") from None
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
    return _error(f"{library} of CUDA {major}", _said(error), install(f"cuda{major}"))


def _said(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _error(expected: str, found: str, fix: str) -> BackendError:
    return BackendError("backend cuda", expected, found, fix)
