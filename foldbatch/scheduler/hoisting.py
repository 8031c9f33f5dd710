"""Products taken out of a recursion: what is known before it starts is multiplied at once, and once each.

A recursive cell often multiplies what it reads by a weight, level after level. Where a value comes from
outside the recursion (in a binary tree half of all children are leaves), its product need not wait for
the level: it is made before the first one, with all others of its kind, and once for all calls that share
it. So the levels multiply only what the recursion itself has made. `split` tells which is which.

Source: loop-invariant code motion (Aho, Lam, Sethi, Ullman 2006, section 9.1.7), of rows instead of code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from foldbatch.scheduler.arithmetic import Arithmetic
from foldbatch.scheduler.policies import Plan
from foldbatch.scheduler.schedule import CellTable, Hoisted, Index
from foldbatch.scheduler.trace import CellSignature

FEWEST = 400  # calls: with fewer, what the levels save is lost before and after them
LEAST = 0.1  # share of the rows that must be saved, as they repeat: else nothing pays for storing products


def hoisting(cells: Sequence[CellSignature], plan: Plan) -> Iterator[int]:
    """Yield the cells that have a product to hoist and are a recursion of their own.

    All that they read from outside has been computed before their first level.
    """
    for phase in plan.phases:
        k = phase.cells[0] if len(phase.cells) == 1 else None
        if k is not None and cells[k].recursive and cells[k].hoisted is not None:
            yield k


def hoist(
    cell: int,
    cells: Sequence[CellSignature],
    tables: Sequence[CellTable],
    arena_rows: Sequence[int],
    arithmetic: Arithmetic,
) -> Hoisted | None:
    """Return which of a cell's products need no level; None if too few calls or copies make that not gain.

    Args:
        cell: one that `hoisting` yields.
        cells: all of them.
        tables: of all cells.
        arena_rows: rows per arena.
        arithmetic: what computes on whole arrays.
    """
    mine, table = cells[cell], tables[cell]
    assert mine.hoisted is not None
    if len(table.order) < FEWEST:
        return None
    span = table.operands[mine.hoisted]
    groups = np.full(arena_rows[span.arena], -1, np.int64)
    count = 0
    for other, written in zip(cells, tables, strict=True):
        for arena, rows in zip(other.outputs, written.outputs, strict=True):
            if arena == span.arena and other.component != mine.component:
                groups[rows] = _groups(written, count)
                count += len(written.order)
    entries = span.rows if span.start is None else np.arange(span.start, span.start + span.size)
    assert entries is not None
    split = arithmetic.split(entries, span.width, groups, count)
    return None if len(entries) - len(split.rows) < LEAST * len(entries) else split


def _groups(table: CellTable, first: int) -> Index:
    """Return the group of each result of a cell: calls that are shared are one."""
    groups = np.arange(first, first + len(table.order))
    return groups if table.copies is None else np.repeat(groups, np.diff(table.copies))
