"""Records: data that lie in columns, one for each field, such as those of Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class ColumnStore:
    """One column: an object in each row, None in some."""

    size: int  # the number of rows
    # returns the Python objects of some rows, given the rows' numbers
    objects: Callable[[NDArray[Any]], list[Any]]
    # returns the number of each row's object, and the objects; None where that is not at hand
    encode: Callable[[], tuple[NDArray[Any], Sequence[Any]]] | None = None
    absent: NDArray[Any] | None = None  # ``[size]`` bool: the rows that hold None; None where there are none
    # the columns of a dict's items, by key; None where the objects are no dicts
    fields: Mapping[str, ColumnStore] | None = None
    # ``[size]`` each: where the items of each row's list begin, and how many there are
    bounds: tuple[NDArray[Any], NDArray[Any]] | None = None
    # the column of the items of all lists; None where the objects are no lists
    items: ColumnStore | None = None
    numbers: NDArray[Any] | None = None  # ``[size]``: the objects themselves, where they are numbers or bools
    _encoded: list[tuple[NDArray[Any], Sequence[Any]]] = field(default_factory=list, repr=False)

    def lacks(self, rows: NDArray[Any]) -> bool:
        """Return whether one of some rows holds None."""
        return self.absent is not None and bool(self.absent[rows].any())

    def encoded(self, rows: NDArray[Any]) -> tuple[NDArray[Any], Sequence[Any]]:
        """Return the number of each of some rows' objects, and the objects."""
        if self.encode is None:
            return np.arange(len(rows)), self.objects(rows)
        if not self._encoded:
            self._encoded.append(self.encode())
        codes, objects = self._encoded[0]
        return codes[rows], objects


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Records(Sequence[Any]):
    """Examples that lie in columns."""

    store: Callable[[], ColumnStore]  # returns the column of examples, the same one each time
    # returns the Python objects of some rows, given the rows' numbers
    make: Callable[[NDArray[Any]], list[Any]]
    rows: NDArray[Any]  # ``[len]``: the rows that hold these examples
    weight: float  # about how many values there are in an example

    def __repr__(self) -> str:
        return f"Records({len(self)} examples)"

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Records: ...

    def __getitem__(self, index: int | slice) -> Any:
        """Return an example as a Python object, or several as records."""
        if isinstance(index, slice):
            return replace(self, rows=self.rows[index])
        return self.make(self.rows[[index]])[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.objects())

    @property
    def values(self) -> int:
        """About how many values the examples hold."""
        return int(self.weight * len(self))

    def objects(self) -> list[Any]:
        """Return the examples as Python objects."""
        return self.make(self.rows)


def chosen(examples: Sequence[Any], indices: Sequence[int]) -> Sequence[Any]:
    """Return some examples by their indices, records as records.

    >>> chosen("abc", [2, 0])
    ['c', 'a']
    """
    if type(examples) is Records:
        return replace(examples, rows=examples.rows[np.asarray(indices, np.int64)])
    return [examples[i] for i in indices]
