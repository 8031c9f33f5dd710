"""Rows that a buffer holds: those of Arrow stay an array until they leave it, others are objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.trees.given import ArrowRows, Row

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Retained:
    """Some rows: an array of Arrow, or an array of objects, ``[n]``.

    Rows of Arrow take a fraction of the memory of Python's objects, which are made when rows leave.
    """

    values: Any

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, places: Index) -> list[Row]:
        """Return the rows at some places, as objects.

        >>> retained(["a", "b", "c"]).rows(np.array([2, 0]))
        ['c', 'a']
        """
        if isinstance(self.values, np.ndarray):
            return list(self.values[places])
        return self.values.take(places).to_pylist()  # type: ignore[no-any-return]

    def taken(self, places: Index) -> Retained:
        """Return the rows at some places."""
        is_array = isinstance(self.values, np.ndarray)
        return Retained(self.values[places] if is_array else self.values.take(places))


def retained(rows: Sequence[object]) -> Retained:
    """Return rows to hold; those of Arrow as objects where their type cannot be taken from or joined."""
    if isinstance(rows, ArrowRows):
        try:
            return Retained(
                _concatenated([rows.array.take([0] * bool(len(rows))), rows.array]).slice(bool(len(rows)))
            )
        except NotImplementedError:  # of views of strings and a few more types
            rows = rows[:]
    values = np.empty(len(rows), object)
    values[:] = rows
    return Retained(values)


def joined(parts: Sequence[Retained]) -> Retained:
    """Return the rows of several parts, one after the other.

    >>> joined([retained([[1], [2]]), retained([]), retained([[3]])]).rows(np.arange(3))
    [[1], [2], [3]]
    """
    if len(parts) == 1:
        return parts[0]
    if any(isinstance(part.values, np.ndarray) for part in parts):
        objects = [
            part.values if isinstance(part.values, np.ndarray) else retained(part.values.to_pylist()).values
            for part in parts
        ]
        return Retained(np.concatenate(objects))
    return Retained(_concatenated([part.values for part in parts]))


def _concatenated(arrays: Sequence[object]) -> Any:
    from foldbatch.trees.arrow import concatenated  # noqa: PLC0415 - it is needed for such rows alone

    return concatenated(arrays)
