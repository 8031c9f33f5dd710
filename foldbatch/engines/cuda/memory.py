"""Buffers of the device that outlive a batch: arenas, kept values and scratch, and what a batch brings.

A buffer has a number, as in `foldbatch.engines.memory`. Its height grows by classes, each at least an eighth
higher than the one before, so that a run settles after a few batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.drivers.driver import DeviceBuffer
from foldbatch.engines.launch import Ints
from foldbatch.types import TensorType

STEPS = 8  # classes from a power of two to the next
NAN = 255  # a byte: floats of such bytes are NaN


def capacity(rows: int) -> int:
    """Return the least capacity class that holds so many rows.

    >>> [capacity(rows) for rows in (0, 5, 17, 1000, 1025)]
    [1, 5, 18, 1024, 1152]
    """
    step = max(1, (1 << max(0, rows - 1).bit_length()) // (2 * STEPS))
    return max(1, -(-rows // step) * step)


class DeviceMemory:
    """Buffers by number; one memory serves one batch at a time.

    Args:
        device: whose memory it is.
        types: of the buffers; None for those that a batch brings.
        poisoned: whether buffers of floats are filled with NaN before each batch.

    Attributes:
        addresses: ``[buffers] int64``: where each begins.
        held: what holds the memory of each.
    """

    def __init__(self, device: Device, types: Sequence[TensorType | None], *, poisoned: bool = False) -> None:
        self._device = device
        self._types = types
        self._poisoned = poisoned
        self._own = np.array([type_ is not None for type_ in types], bool)
        self._capacity = np.zeros(len(types), np.int64)
        self.held: list[DeviceBuffer | Any] = [None] * len(types)
        self.addresses = np.zeros(len(types), np.int64)

    def fit(self, heights: Ints) -> None:
        """Make every buffer as high as a batch needs it: ``heights: [buffers]``."""
        driver = self._device.driver
        wanted = np.maximum(heights, 1)
        for number in np.flatnonzero(self._own & (wanted > self._capacity)).tolist():
            type_ = self._types[number]
            assert type_ is not None
            rows = capacity(int(wanted[number]))
            self._capacity[number] = rows
            self.held[number] = None  # before the new one is there: together they may be too much
            self.bring(number, self._device.allocate(rows * type_.nbytes))
        if self._poisoned:
            for number in np.flatnonzero(self._own).tolist():
                type_ = self._types[number]
                if type_ is not None and type_.is_float:
                    nbytes = int(self._capacity[number]) * type_.nbytes
                    driver.fill(int(self.addresses[number]), NAN, nbytes, self._device.stream)

    def bring(self, number: int, held: Any, offset: int = 0) -> None:
        """Let memory that a batch brings be a buffer, from a byte on; `held` has a `pointer`."""
        self.held[number] = held
        self.addresses[number] = held.pointer + offset
