"""Kinds of columns: what a variable of the tracing program holds, for many visits at once.

A *lane* is one visit, or one turn of a loop. A column has one entry a lane. Numbers of values are plain
arrays of `references`; objects are one of the kinds below, which say what they hold of each lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from foldbatch.blocks.columnar.forest import Forest, counts
from foldbatch.trees.records import ColumnStore

Array: TypeAlias = NDArray[Any]
Kind = TypeVar("Kind")


class Refused(Exception):  # noqa: N818 - is caught, and the examples are traced the ordinary way
    """Something that columns cannot do; `where` is the path of the block."""

    def __init__(self, reason: str, where: str = "") -> None:
        super().__init__(reason)
        self.reason, self.where = reason, where

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" if self.where else self.reason


@dataclass(frozen=True, slots=True, eq=False)
class NodeColumn:
    """A node of a tree in each lane."""

    forest: Forest  # the trees
    index: Array  # ``[lanes]``: the nodes' places in the forest
    depth: int = 0  # how many levels below the node that the present function visits


@dataclass(frozen=True, slots=True, eq=False)
class ObjectColumn:
    """A Python object in each lane."""

    codes: Array  # ``[lanes]``: the places of the lanes' objects in `objects`
    objects: Sequence[Any]  # Python objects; some may stand in no lane

    def compact(self) -> ObjectColumn:
        """Return the same objects without those that stand in no lane."""
        present = np.flatnonzero(counts(self.codes, len(self.objects)))
        if len(present) == len(self.objects):
            return self
        places = np.zeros(len(self.objects), np.int64)
        places[present] = np.arange(len(present))
        return ObjectColumn(places[self.codes], [self.objects[place] for place in present.tolist()])


@dataclass(frozen=True, slots=True, eq=False)
class ListColumn:
    """A list in each lane."""

    lengths: Array  # ``[lanes]``
    items: tuple[Column, ...]  # columns of all items, lane by lane: one, or one for each part of an item


@dataclass(frozen=True, slots=True, eq=False)
class StoredColumn:
    """An object in each lane that lies in columns of the user's data, as those of Arrow arrays."""

    store: ColumnStore  # the column of the data
    rows: Array  # ``[lanes]``: the row of each lane's object

    def data(self) -> ObjectColumn:
        """Return the same objects, made Python objects."""
        codes, objects = self.store.encoded(self.rows)
        return ObjectColumn(codes, objects)

    def sizes(self) -> Array:
        """Return the lengths of the lanes' lists.

        Raises:
            Refused: where they are no lists, or one is None.
        """
        if self.store.bounds is None or self.store.lacks(self.rows):
            raise Refused("it goes through what is no list")
        return self.store.bounds[1][self.rows]


Column: TypeAlias = "Array | NodeColumn | ObjectColumn | StoredColumn | ListColumn | tuple[Any, ...]"


def unstored(column: Column) -> Column:
    """Return a column with Python objects for those that lie in the user's data; any other as it is."""
    return column.data() if isinstance(column, StoredColumn) else column


def take(column: Column, lanes: Array | None) -> Column:
    """Return some lanes of a column; None stands for all.

    >>> take(ListColumn(np.array([1, 2]), (np.array([7, 8, 9]),)), np.array([1])).items
    (array([8, 9]),)
    """
    if lanes is None:
        return column
    match column:
        case np.ndarray():
            return column.take(lanes)
        case NodeColumn():
            return replace(column, index=column.index.take(lanes))
        case ObjectColumn():
            return replace(column, codes=column.codes.take(lanes))
        case StoredColumn(store, rows):
            return StoredColumn(store, rows.take(lanes))
        case tuple():
            return tuple(take(part, lanes) for part in column)
    starts = np.cumsum(column.lengths) - column.lengths
    lengths = column.lengths[lanes]
    return ListColumn(lengths, tuple(take(part, ranges(starts[lanes], lengths)) for part in column.items))


def ranges(starts: Array, lengths: Array) -> Array:
    """Return the numbers from each start on, as many as its length, one range after the other.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total)


def merge(parts: Sequence[tuple[Array, Column]], size: int) -> Column:
    """Return one column of several, each with its lanes; every lane is in one of them.

    Raises:
        Refused: where they are of several kinds.
    """
    parts = [(lanes, unstored(column)) for lanes, column in parts]
    if numbers := _of_kind(np.ndarray, parts):
        return _scattered(numbers, size)
    if data := _of_kind(ObjectColumn, parts):
        objects: list[Any] = []
        codes = []
        for lanes, column in data:
            codes.append((lanes, column.codes.astype(np.int64) + len(objects)))
            objects += column.objects
        return ObjectColumn(_scattered(codes, size), objects)
    raise Refused("it chooses between nodes, lists, or objects of several kinds")


def _of_kind(kind: type[Kind], parts: Sequence[tuple[Array, Column]]) -> list[tuple[Array, Kind]]:
    """Return the parts, if all are of one kind."""
    some: list[tuple[Array, Kind]] = [(at, column) for at, column in parts if isinstance(column, kind)]
    return some if len(some) == len(parts) else []


def _scattered(parts: Sequence[tuple[Array, Array]], size: int) -> Array:
    result = np.zeros(size, np.result_type(*(column.dtype for _, column in parts)))
    for lanes, column in parts:
        result[lanes] = column
    return result
