"""Levels by array operations, a level at a time; by a sweep in Python where that is quicker: an oracle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldbatch.scheduler.levels import longest_chains
from foldbatch.scheduler.trace import CellSignature, Index, Ints

PYTHON_CALLS = 150  # calls, up to which a sweep in Python finds levels
HIGH = 64  # levels, after which so little is left to do at a time that the sweep does the rest


def levels_in(
    cells: Sequence[CellSignature],
    scopes: Sequence[Sequence[int]],
    calls: Sequence[Ints],
    elements: Sequence[Sequence[Ints]],
    values: int,
) -> list[Ints]:
    """Return the level of each call in its scope: per cell ``[n] int32``.

    Each of `scopes` is some cells, by number; calls of cells that are in none have level 0.

    >>> cell = CellSignature("cell", 0, True, (), (0,), 1)
    >>> levels_in([cell], [(0,)], [np.array([[1, 0], [2, 1]], np.int32)], [()], 3)
    [array([0, 1], dtype=int32)]
    """
    levels = [np.zeros(len(rows), np.int32) for rows in calls]
    for members in scopes:
        if sum(len(calls[k]) for k in members) <= PYTHON_CALLS:
            for k, chains in longest_chains(cells, calls, elements, values, members, members).items():
                levels[k] += np.array(chains, np.int32) - 1
        else:
            _level(members, cells, calls, elements, values, levels)
    return levels


def _level(
    members: Sequence[int],
    cells: Sequence[CellSignature],
    calls: Sequence[Ints],
    elements: Sequence[Sequence[Ints]],
    values: int,
    levels: Sequence[Ints],
) -> None:
    """Write the levels of some cells' calls, level by level.

    After i turns each call has its level, or i where that is higher. So the next turn looks only at reads of
    calls that have level i by now.
    """
    sizes = [len(calls[k]) for k in members]
    stops = np.cumsum(sizes).tolist()
    maker = np.full(values, -1, np.int32)  # the call that a value is a result of
    for k, size, stop in zip(members, sizes, stops, strict=True):
        for output in range(len(cells[k].outputs)):
            maker[calls[k][:, 0] + output] = np.arange(stop - size, stop, dtype=np.int32)
    readers, read_calls = [], []
    for k, size, stop in zip(members, sizes, stops, strict=True):
        for numbers, values_read in _pairs(cells[k], calls[k], elements[k]):
            makers = maker.take(values_read)
            inside = np.flatnonzero(makers >= 0)
            read_calls.append(makers[inside])
            readers.append((stop - size + numbers)[inside])
    reader, read = np.concatenate([np.zeros(0, np.int64), *readers]), np.concatenate([maker[:0], *read_calls])
    level = np.zeros(stops[-1], np.int32)
    for turn in range(HIGH):
        level[reader] = turn + 1
        unsettled = np.flatnonzero(level.take(read) == turn + 1)
        reader, read = reader.take(unsettled), read.take(unsettled)
        if not len(unsettled):
            break
    else:
        bases = np.concatenate([calls[k][:, 0] for k in members])
        _finish(level, reader, read, bases)
    for k, size, stop in zip(members, sizes, stops, strict=True):
        levels[k][:] = level[stop - size : stop]


def _finish(level: Ints, reader: Index, read: Ints, bases: Ints) -> None:
    """Raise the levels of calls that read others of the same level or a higher one, in the order of calls."""
    order = np.argsort(bases.take(reader), kind="stable")
    levels = level.tolist()
    for above, below in zip(reader.take(order).tolist(), read.take(order).tolist(), strict=True):
        levels[above] = max(levels[above], levels[below] + 1)
    level[:] = levels


def _pairs(cell: CellSignature, rows: Ints, elements: Sequence[Ints]) -> list[tuple[Index, Ints]]:
    """Return the reads of a cell's calls as pairs of arrays ``[*]``: the reading call, and the value read."""
    numbers = np.arange(len(rows))
    pairs = [(numbers, rows[:, 1 + column]) for column in range(cell.arguments)]
    for sequence, part in enumerate(elements):
        owners = np.repeat(numbers, rows[:, 1 + cell.arguments + sequence])
        pairs += [(owners, part[:, member]) for member in range(part.shape[1])]
    return pairs
