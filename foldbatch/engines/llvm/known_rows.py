"""Which of the rows that a recursion reads are known before it starts, each distinct one once.

In a binary tree half of all children are leaves, and words repeat. `split` parts what an operand reads into
rows that only a level can multiply, because an earlier level makes them, and rows that can be multiplied
before the first level. It is one loop over the batch, compiled once a machine; it is plain Python, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from foldbatch.engines.llvm.compiling import compiled_function
from foldbatch.scheduler.trace import Index

i8 = u8 = int  # compiled: conversions

SIGNATURE = "i8[] i8 i8[] i8[] i8[] i8[] i8[,] i8[] i8[] i8[]"


class Split(NamedTuple):
    """The rows that an operand reads, as they are multiplied: column by column.

    An operand has `width` columns: call i reads ``entries[i * width]`` to ``entries[(i + 1) * width - 1]``.

    Attributes:
        rows: ``[*] int64``: the arena's rows that are multiplied: column after column; of each column first
            those that levels multiply, in the order of the calls, then the distinct known ones.
        ranks: ``[*] int64``: for each of these the rank of the call, or calls + number of the known row.
        counts: ``[width, calls + 2] int64``: where in `rows` those of each rank on begin, of a column; the
            last but one is where its known rows begin, the last is where they end.
        place: ``[calls * width] int64``: for each entry the number of its known row, or -1.
        users: ``[*] int64``: the ranks that read each known row, one row's after the other's.
        starts: ``[m + 1] int64``: where those of each of the m known rows begin.
    """

    rows: Index
    ranks: Index
    counts: Index
    place: Index
    users: Index
    starts: Index

    @property
    def size(self) -> int:
        """How many distinct known rows there are."""
        return len(self.starts) - 1


def split(entries: Index, width: int, groups: Index, count: int) -> Split:
    """Part what an operand reads into what is known before the recursion and what is not.

    Args:
        entries: ``[calls * width] int64``: the arena's rows that it reads.
        width: rows a call.
        groups: ``[*] int64``: for each row of the arena the number of its value, equal for equal ones, or -1
            if it is not known beforehand.
        count: how many such numbers there are.
    """
    return split_with(compiled(), entries, width, groups, count)


def split_with(function: Callable[..., int], entries: Index, width: int, groups: Index, count: int) -> Split:
    """Do what `split` does, by `write_split` or what was compiled of it."""
    calls = len(entries) // width
    rows, ranks, place, users = (np.empty(len(entries), np.int64) for _ in range(4))
    counts, starts = np.empty((width, calls + 2), np.int64), np.empty(len(entries) + 1, np.int64)
    uses = np.zeros(count * width, np.int64)
    size = function(entries, width, groups, uses, rows, ranks, counts, place, users, starts)
    late = int((counts[:, -2] - counts[:, 0]).sum())
    users, starts = users[: len(entries) - late], starts[: size - late + 1]
    return Split(rows[:size], ranks[:size], counts, place, users, starts)


def write_split(
    entries: Index,
    width: int,
    groups: Index,
    uses: Index,
    rows: Index,
    ranks: Index,
    counts: Index,
    place: Index,
    users: Index,
    starts: Index,
) -> int:
    """Write a `Split`, to arrays that are long enough; return how many rows there are.

    `uses` are zeros, one for each column and group.
    """
    size, calls = i8(u8(len(uses)) // u8(width)), i8(u8(len(entries)) // u8(width))
    for call in range(calls):
        for column in range(width):
            group = groups[entries[call * width + column]]
            if group >= 0:
                uses[column * size + group] += 1
    to, found, total = 0, 0, 0
    for column in range(width):
        for call in range(calls):
            counts[column, call] = to
            row = entries[call * width + column]
            if groups[row] < 0:
                rows[to], ranks[to], place[call * width + column] = row, call, -1
                to += 1
        counts[column, calls] = to
        first = found
        for key in range(column * size, (column + 1) * size):
            if uses[key]:
                starts[found], ranks[to + found - first] = total, -1
                total += uses[key]
                uses[key] = found
                found += 1
        for call in range(calls):
            row = entries[call * width + column]
            group = groups[row]
            if group >= 0:
                at = uses[column * size + group]
                place[call * width + column] = at
                there = to + at - first
                if ranks[there] < 0:  # the first of its kind
                    rows[there], ranks[there] = row, calls + at
                users[starts[at]] = call  # starts are where the next one goes, and end up one place ahead
                starts[at] += 1
        to += found - first
        counts[column, calls + 1] = to
    for at in range(found, 0, -1):
        starts[at] = starts[at - 1]
    starts[0] = 0
    return to


@cache
def compiled() -> Callable[..., int]:
    """Return `write_split` compiled."""
    return compiled_function(write_split, SIGNATURE, sys.modules[__name__])
