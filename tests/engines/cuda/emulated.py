"""A device that is emulated on the CPU, for tests."""

import shutil
from functools import cache

import pytest

from foldbatch.engines.cuda import cupy_driver
from foldbatch.engines.cuda.device import Device
from foldbatch.errors import BackendError
from tests.engines.cuda.emulator import Emulator

needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")


@cache
def device() -> Device:
    return Device(Emulator())


def gpu_answers() -> bool:
    try:
        return bool(cupy_driver.check())
    except BackendError:
        return False
