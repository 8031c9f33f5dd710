"""A store: the values of all rounds of a batch so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.scheduler.trace import Index
from foldbatch.types import TensorType


class Store:
    """Values by number, those of a type in one array; numbers count from the beginning of the run.

    Attributes:
        example: ``[numbers] int64``: whose each is, by place in the batch.
        place: ``[numbers] int64``: its row in the array of its type.
        known: how many numbers have been told of.
    """

    def __init__(self) -> None:
        self.example: Index = np.zeros(1024, np.int64)
        self.place: Index = np.zeros(1024, np.int64)
        self.known = 0
        self._arrays: dict[TensorType, NDArray[Any]] = {}
        self._used: dict[TensorType, int] = {}

    def number(self, examples: Sequence[int], sizes: Sequence[int]) -> None:
        """Tell whose the next numbers are: so many of each example, one after the other."""
        last = self.known + sum(sizes)
        if last > len(self.place):
            more = np.zeros(max(last, 2 * len(self.place)) - len(self.place), np.int64)
            self.place, self.example = np.append(self.place, more), np.append(self.example, more)
        self.example[self.known : last] = np.repeat(np.array(examples, np.int64), np.array(sizes, np.int64))
        self.known = last

    def add(self, type_: TensorType, values: NDArray[Any], numbers: Index) -> None:
        """Keep values of a type ``[n, *shape]``, of these numbers ``[n]``."""
        used = self._used.get(type_, 0)
        end = used + len(values)
        held = self._arrays.get(type_)
        if held is None or end > len(held):
            room = np.empty((max(2 * end, 256), *type_.shape), values.dtype)
            if held is not None:
                room[:used] = held[:used]
            held = self._arrays[type_] = room
        held[used:end] = values
        self._used[type_] = end
        self.place[numbers] = np.arange(used, end)

    def take(self, type_: TensorType, numbers: Index) -> NDArray[Any]:
        """Return values by their numbers ``[n]``: ``[n, *shape]``."""
        return self._arrays[type_].take(self.place.take(numbers), axis=0)

    def row(self, type_: TensorType, number: int) -> Any:
        """Return one value, which must not be changed."""
        return self._arrays[type_][self.place[number]]
