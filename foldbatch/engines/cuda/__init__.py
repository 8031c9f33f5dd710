"""The CUDA engine: kernels generated for a model, launched by the launch table on a GPU."""

from __future__ import annotations

import os
from functools import cache

from foldbatch.communicators.local import gpu_of, local_rank
from foldbatch.engines.cuda.cupy_driver import check as check_card
from foldbatch.engines.cuda.cupy_driver import load_driver
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.engine import CudaEngine
from foldbatch.engines.engine import DEFAULTS, LAUNCHES, PRECISIONS, Backend, EngineSettings
from foldbatch.model.model import Model


def device(precision: str) -> Device:
    """Return a GPU, the same for all programs that compute in one precision.

    It is CuPy's current one. While that is the first, of several processes of a machine each takes its own:
    the one that has the number of the process among them.
    """
    runtime = check_card().cuda.runtime
    number = gpu_of(runtime.getDevice(), runtime.getDeviceCount(), local_rank(os.environ))
    return _device(precision, number)


@cache
def _device(precision: str, number: int) -> Device:
    return Device(load_driver(precision, number))


def load(model: Model, settings: EngineSettings = DEFAULTS) -> CudaEngine:
    """Return the engine for a model; `foldbatch.compile` says what the precisions are."""
    there, launch, debug, precision = settings.device, settings.launch, settings.debug, settings.precision
    if there is None:
        there = device("fp32" if precision == "mixed" else precision)  # mixed multiplies as fp32
    return CudaEngine("cuda", model, there, launch=launch, debug=debug, precision=precision)


def check() -> None:
    """Raise an error where no GPU can be used."""
    load_driver()


BACKEND = Backend(load, check, PRECISIONS, LAUNCHES)
