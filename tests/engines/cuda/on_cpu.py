"""The CUDA engine on the CPU, for tests: the same kernels, compiled by the C compiler."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

from foldbatch.engines.cuda.captured import Arranged, Captured, Key
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.engine import CudaEngine
from foldbatch.engines.engine import DEFAULTS, LAUNCHES, Backend, EngineSettings
from foldbatch.model.model import Model
from tests.engines.cuda.emulator import load_driver

DRIVER = load_driver


@contextmanager
def always_captured() -> Iterator[None]:
    """Let every batch fit into a class that is learned of it, and capture its graph when it first runs."""
    arranged, run = Captured.arranged, Captured.run

    def learned(self: Captured, schedule: Any, ids: Any) -> Arranged | None:
        found = arranged(self, schedule, ids)
        if found is None:
            self.learn()
            found = arranged(self, schedule, ids)
        return found

    def at_once(self: Captured, key: Key, enqueue: Any) -> bool:
        self._warm.add((key.rooms, key.update))
        return run(self, key, enqueue)

    with mock.patch.multiple(Captured, arranged=learned, run=at_once):
        yield


@cache
def device() -> Device:
    return Device(DRIVER())


def load(model: Model, settings: EngineSettings = DEFAULTS) -> CudaEngine:
    """Return the engine for a model; ``auto`` is straight, for fewer launches are no gain here."""
    way = "straight" if settings.launch == "auto" else settings.launch
    there, debug, precision = settings.device or device(), settings.debug, settings.precision
    return CudaEngine("cuda-on-cpu", model, there, launch=way, debug=debug, precision=precision)


BACKEND = Backend(load, precisions=("fp32", "3xtf32", "mixed"), launches=LAUNCHES)
