"""A card that is the CPU: memory of PyTorch's tensors there, kernels by the engine's test driver.

What goes between the host and this card is noted, as a GPU would have to copy it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from foldbatch.torch import device
from foldbatch.torch.device import TorchDevice
from tests.engines.cuda.checked import Asked
from tests.engines.cuda.emulator import Emulator

CPU = torch.device("cpu")


class HostCard:
    """The CPU as a card; see `foldbatch.torch.device.Card`.

    Attributes:
        driver: the driver, which notes what it is asked.
        number: what tells the current stream; set it for another one.
    """

    place, backend, pins, name = CPU, "cuda-on-cpu", False, "the CPU, emulating a card of PyTorch"

    def __init__(self, driver: Any = None) -> None:
        self.driver: Any = Asked(driver or Emulator())
        self.number = 0
        self.used: list[torch.Tensor] = []
        self._streams: dict[int, Any] = {}

    def current(self) -> tuple[int, Any]:
        if self.number not in self._streams:
            self._streams[self.number] = self.driver.stream()
        return self.number, self._streams[self.number]

    def uses(self, tensor: torch.Tensor) -> None:
        self.used.append(tensor)

    def array(self, tensor: torch.Tensor) -> Any:
        return tensor.numpy()

    def prepare(self, stream: Any) -> None:
        self.driver.stream()  # which a captured one must not ask for


class Keeping(TorchDevice):
    """A device for a driver that is late: on a card, memory that is free is used again in the stream's order."""

    def __init__(self, card: HostCard) -> None:
        self.kept: list[Any] = []
        super().__init__(card)
        made = self.driver.empty

        def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Any:
            self.kept.append(made(shape, dtype))
            return self.kept[-1]

        self.driver.empty = empty

    def array(self, tensor: torch.Tensor) -> Any:
        self.kept.append(super().array(tensor))
        return self.kept[-1]


def new_device(driver: Any = None) -> TorchDevice:
    """Return a new device, by a driver that does everything at once or by the one given, which may be late."""
    return TorchDevice(HostCard()) if driver is None else Keeping(HostCard(driver))


@contextmanager
def on_card(there: TorchDevice | None = None) -> Iterator[TorchDevice]:
    """Let PyTorch's device `cpu` be a card: modules made here are on it, and moves to `cpu` move to it."""
    there = there or new_device()
    with mock.patch.object(device, "find", lambda place: there if place.type == "cpu" else None):
        yield there
