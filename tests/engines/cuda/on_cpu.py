"""The CUDA engine on the CPU, for tests: the same kernels, compiled by the C compiler."""

from __future__ import annotations

from functools import cache

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.engine import CudaEngine
from foldbatch.model.model import Model
from tests.engines.cuda.emulator import load_driver

DRIVER = load_driver


@cache
def device() -> Device:
    """Return the device, the same for all programs of a process."""
    return Device(DRIVER())


def load(model: Model, *, debug: bool = False, engine: str = "auto") -> CudaEngine:
    """Return the engine for a model; ``auto`` is straight, for fewer launches are no gain here."""
    way = "straight" if engine == "auto" else engine
    return CudaEngine("cuda-on-cpu", model, device(), engine=way, debug=debug)
