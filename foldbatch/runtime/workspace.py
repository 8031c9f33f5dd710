"""Buffers that outlive a batch: arenas, kept values and scratch, grown when a batch needs more.

A buffer of `rows` rows is the leading part of one allocated once; its contents are undefined
until written. Growth is geometric, so a run settles after a few batches.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from foldbatch.params import Array
from foldbatch.types import TensorType


class Workspace:
    """Arrays by key; one workspace serves one batch at a time.

    A `poisoned` one fills new float arrays with NaN, so that a test sees who reads what nobody wrote.
    """

    def __init__(self, *, poisoned: bool = False) -> None:
        self._poisoned = poisoned
        self._arrays: dict[Hashable, Array] = {}

    def rows(self, key: Hashable, type_: TensorType, rows: int) -> Array:
        """Return an array ``[rows, *shape]``, the same memory for the same key as long as it suffices."""
        array = self._arrays.get(key)
        if array is None or len(array) < rows:
            capacity = max(rows, len(array) + len(array) // 4 if array is not None else rows, 1)
            array = np.empty((capacity, *type_.shape), type_.dtype)
            self._arrays[key] = array
            if self._poisoned:
                _poison(array)
        return array[:rows]

    def single(self, key: Hashable, type_: TensorType) -> Array:
        """Return an array of the type's own shape."""
        return self.rows(key, type_, 1)[0, ...]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for array in self._arrays.values())

    def poison(self) -> None:
        """Fill every float array with NaN."""
        for array in self._arrays.values():
            _poison(array)


def _poison(array: Array) -> None:
    if array.dtype.kind == "f":
        array.fill(np.nan)
