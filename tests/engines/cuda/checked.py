"""Programs of the CUDA engine on a driver that is late: the same numbers in every order of the device's work."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import numpy as np

from foldbatch.engines.cuda.driver import Driver
from tests.engines.cuda import on_cpu
from tests.engines.cuda.emulator import Emulator
from tests.engines.cuda.late import Late

# How eager the streams are: the one that computes, then the one that copies batches to the device.
ORDERS: dict[str, tuple[float, float]] = {
    "at once": (1, 1),
    "late": (0, 0),
    "copies first": (0, 1),
    "computing first": (1, 0),
    "mixed": (0.2, 0.2),
}
ENQUEUED = ("launch", "multiply", "replay", "copy_in", "copy_out", "copy", "fill")


class Asked:
    """A driver that notes what it is asked, and asks another one.

    Attributes:
        calls: the name of each method that was called, with its arguments, in order.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self._kept = False  # for a graph, so that nothing is enqueued

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self.driver, name)
        if not callable(asked):
            return asked

        def ask(*arguments: Any, **options: Any) -> Any:
            if not self._kept or name == "end_capture":
                self.calls.append((name, arguments))
            self._kept = name == "begin_capture" or (self._kept and name != "end_capture")
            return asked(*arguments, **options)

        return ask

    def enqueued(self, begin: int = 0) -> list[str]:
        return [name for name, _ in self.calls[begin:] if name in ENQUEUED]


def late(order: str = "late") -> Asked:
    return Asked(Late(Emulator(), ORDERS[order]))


@contextmanager
def driven(driver: Any = None) -> Iterator[Any]:
    """Let programs that are compiled for "cuda-on-cpu" use a driver, by default a late one."""
    driver = driver or late()
    device = cache(on_cpu.device.__wrapped__)  # a new one: the usual one has its driver already
    with mock.patch.multiple(on_cpu, DRIVER=lambda: driver, device=device):
        yield driver
    gc.collect()


def in_every_order(run: Callable[[], Any]) -> Any:
    """Run a program in every order of the device's work, and return what `run` returns, the same each time.

    Args:
        run: compiles for "cuda-on-cpu", and returns numbers: dicts, lists and arrays of the host.
    """
    results = []
    for order in ORDERS:
        with driven(late(order)):
            results.append(run())
        np.testing.assert_equal(results[-1], results[0], err_msg=f"the order of work is: {order}")
    return results[0]
