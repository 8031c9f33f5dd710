"""The launch table: what a batch runs, as one packed table of integers that every engine walks.

A row is a launch: one kernel on some levels of one cell. Its first three numbers are the kernel, the first
level and the level after the last one (rows of `LaunchTable.bounds`); then `Fields` follow for each
binding of the kernel's routine, slots before results:

==========  =======================================================================================
``base``    the buffer that holds the rows of the whole batch; -1 for segments, which lie in the index
``first``   the row of the first call, where rows follow each other; -1 where an index array tells them
``index``   where in `LaunchTable.index` this array begins (of segments: they themselves); else -1
``width``   rows a call, or an element of a sequence, side by side
``copies``  where in `LaunchTable.index` it is told which calls share a rank: rank i stands for entries
            ``copies[i]`` to ``copies[i + 1]`` of the index array; else -1
``stores``  1 where cotangents or gradients are stored, 0 where they are added to what is there
``spare``   the buffer for copies of rows that do not follow each other; -1 where none is needed
==========  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import ExampleError
from foldbatch.loops.records import Header
from foldbatch.model.evaluation import id_error
from foldbatch.planning.table_loops import HEAD as HEAD
from foldbatch.static.op import OF_LIST

Ints = NDArray[np.int64]


class Fields(Header):
    """The numbers of a binding of a launch; see above."""

    base: int
    first: int
    index: int
    width: int
    copies: int
    stores: int
    spare: int


@dataclass(slots=True)
class LaunchTable:
    """The launches of one direction of a batch, and the rows that they go through."""

    # ``[launches, HEAD + Fields.size * bindings] int64``: kernels with fewer bindings end in -1
    launches: Ints
    bounds: Ints  # ``[levels, 2] int64``: the first call of each level, by rank, and the one after the last
    index: Ints  # ``[*] int64``: all index arrays, one after the other
    heights: Ints  # ``[buffers] int64``: how many rows each buffer must have


def binding(row: Ints, number: int) -> list[int]:
    """Return the fields of a binding of a launch: ``row: [HEAD + Fields.size * bindings]``."""
    start = HEAD + Fields.size * number
    return [int(field) for field in row[start : start + Fields.size]]


class OutOfRangeError(IndexError):
    """An id that a kernel computed is negative, or too large.

    Attributes:
        rank: of the call that it belongs to, among the calls of its cell.
        id: the integer.
        size: what it must stay below.
        launch: the row of the launch table that was running; -1 until the walk of the table fills it in.
        cell: the number of the cell; -1 until the engine fills it in.
        exact: whether the rank is that of the call itself; else it is of another call of the same example.
    """

    exact = True

    def __init__(self, rank: int, id: int, size: int, launch: int = -1, cell: int = -1) -> None:
        super().__init__(rank, id, size, launch, cell)
        self.rank, self.id, self.size, self.launch, self.cell = rank, id, size, launch, cell

    def example_error(self, where: str, segments: Sequence[Ints]) -> ExampleError:
        """Return the error for users; `segments` are those of the cell's calls by rank, see `CellTable`."""
        length = None  # nobody knows of which list, or of which call
        if self.size == OF_LIST and len(segments) == 1 and self.exact:
            (bounds,) = segments
            length = int(bounds[self.rank + 1] - bounds[self.rank])
        return id_error(where, self.id, self.size, length)
