"""Buffers that outlive a batch: arenas, kept values and scratch, grown when a batch needs more.

A buffer has a number and is an array ``[height, *shape]``; its contents are undefined until written. Growth
is geometric, so a run settles after a few batches. Some buffers are not memory of ours but arrays that a
batch brings: parameters, data, results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foldbatch.engines.launch import Ints
from foldbatch.params.parameters import Array
from foldbatch.system.lines import address_of, aligned
from foldbatch.types import TensorType


class BatchMemory:
    """Arrays by number, of these types, None for those that a batch brings; it serves one batch at a time.

    Where `poisoned`, new float arrays, and all of them before each batch, are filled with NaN, so that a test
    sees who reads what nobody wrote.
    """

    def __init__(self, types: Sequence[TensorType | None], *, poisoned: bool = False) -> None:
        self._types = types
        self._poisoned = poisoned
        self.helped = False  # whether another core may help with a batch
        self._own = np.array([type_ is not None for type_ in types], bool)
        # ``[buffers] int64``: how many rows each has
        self.capacity = np.where(self._own, 0, np.iinfo(np.int64).max)
        self.arrays: list[Any] = [None] * len(types)  # the buffers
        self.sources: list[Any] = [None] * len(types)  # of those of another shape of an array, that array
        self.addresses = np.zeros(len(types), np.int64)  # ``[buffers] int64``: where each begins
        for number, type_ in enumerate(types):
            if type_ is not None:
                self._allocate(number, type_, 1)

    def fit(self, heights: Ints) -> None:
        """Make every buffer as high as a batch needs it: ``heights: [buffers]``."""
        for number in (heights > self.capacity).nonzero()[0].tolist():
            type_ = self._types[number]
            assert type_ is not None
            held = int(self.capacity[number])
            self._allocate(number, type_, max(int(heights[number]), held + held // 4))
        if self._poisoned:
            for number in np.flatnonzero(self._own).tolist():
                _poison(self.arrays[number])

    def bring(self, number: int, array: Array) -> None:
        """Let an array that a batch brings be a buffer: ``[height, *shape]``, without gaps."""
        if self.arrays[number] is not array:
            address = address_of(array)
            self.arrays[number], self.addresses[number] = array, address  # in one line: nothing interrupts it

    def _allocate(self, number: int, type_: TensorType, height: int) -> None:
        array: Array = aligned((height, *type_.shape), type_.dtype)
        if self._poisoned:
            _poison(array)
        self.bring(number, array)
        self.capacity[number] = height

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array, own in zip(self.arrays, self._own, strict=True) if own)


def _poison(array: Array) -> None:
    if array.dtype.kind == "f":
        array.fill(np.nan)
