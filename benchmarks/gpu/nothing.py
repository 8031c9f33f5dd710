"""A card that does nothing: the driver on a CuPy and a cuBLAS that return at once.

What a step takes on it is what the host takes: tables, bookkeeping, and the driver's own Python. Numbers are
all zeros. `loaded` says which kernels were asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from types import SimpleNamespace
from typing import Any, Self
from unittest import mock

import numpy as np

from foldbatch.engines.cuda import cupy_driver
from foldbatch.engines.cuda.cupy_driver import CupyDriver
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.driver import HEADER
from foldbatch.engines.cuda.engine import CudaEngine
from foldbatch.engines.engine import DEFAULTS, ENGINES, LAUNCHES, Backend, EngineSettings
from foldbatch.model.model import Model

NAME = "cuda-on-nothing"
PAGE = 1 << 40  # between two addresses, so that no two pieces of memory meet
_addresses = count(PAGE, PAGE)


class _Nothing:
    """What has every method, each of which returns at once: a stream, an event, a graph."""

    done = True  # an event

    def __init__(self, *_: Any, **__: Any) -> None:
        self.ptr = next(_addresses)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def _at_once(self, *_: Any) -> None:
        return None

    record = synchronize = wait_event = upload = launch = begin_capture = _at_once

    def end_capture(self) -> _Nothing:
        """Return a graph."""
        return _Nothing()

    def get_function(self, _: str) -> _Nothing:
        """Return a kernel."""
        return _Nothing()


def _at_once(*_: Any) -> int:
    return 0


class _CudaError(Exception):
    """An error of CUDA, which does not occur."""


def _cupy(loaded: list[str]) -> Any:
    """Return what stands for CuPy, as far as the driver uses it; texts of kernels are added to a list."""

    def module(code: str, **_: Any) -> Any:
        loaded.append(code.removeprefix(f'{HEADER.read_text()}\n#line 1 "kernels"\n'))
        return SimpleNamespace(module=_Nothing())

    runtime = SimpleNamespace(
        getDevice=_at_once,
        setDevice=_at_once,
        getDeviceProperties=lambda _: {"name": b"nothing", "major": 8, "uuid": b""},
        deviceGetPCIBusId=lambda _: "nowhere",
        runtimeGetVersion=lambda: 13000,
        memcpyAsync=_at_once,
        memsetAsync=_at_once,
        memcpyHostToDevice=1,
        memcpyDeviceToHost=2,
        memcpyDeviceToDevice=3,
        streamCaptureModeRelaxed=2,
        CUDARuntimeError=_CudaError,
    )
    cuda = SimpleNamespace(
        runtime=runtime,
        driver=SimpleNamespace(launchKernel=_at_once, CUDADriverError=_CudaError),
        memory=SimpleNamespace(OutOfMemoryError=MemoryError),
        alloc=_Nothing,
        alloc_pinned_memory=lambda nbytes: np.zeros(nbytes, np.uint8),
        Stream=_Nothing,
        Event=_Nothing,
    )
    return SimpleNamespace(cuda=cuda, RawModule=module)


class _Cublas:
    """cuBLAS: each function returns at once that all is well."""

    def __getattr__(self, _: str) -> Any:
        return _at_once


_at_once.restype = None  # type: ignore[attr-defined] # which ctypes lets one set
loaded: list[str] = []  # the texts of kernels, in the order in which they were loaded


def driver() -> CupyDriver:
    """Return a new driver."""
    found: dict[str, Any] = {"check_compiler": lambda major: None, "cublas": lambda major: _Cublas()}
    with mock.patch.multiple(cupy_driver, **found):
        return CupyDriver(_cupy(loaded), "fp32")


@cache
def device() -> Device:
    """Return the device, the same for all programs of a process."""
    return Device(driver())


def load(model: Model, settings: EngineSettings = DEFAULTS) -> CudaEngine:
    """Return the engine for a model; see `foldbatch.engines.cuda.load`."""
    there = settings.device or device()
    return CudaEngine(NAME, model, there, launch=settings.launch, debug=settings.debug)


BACKEND = Backend(load, launches=LAUNCHES)


@contextmanager
def entered() -> Iterator[None]:
    """Let programs be compiled for the backend `NAME`."""
    with mock.patch.dict(ENGINES, {NAME: (__name__, "")}):
        yield
