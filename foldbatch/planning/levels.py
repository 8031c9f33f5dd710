"""Levels: how far calls are from what needs nothing of their scope.

A call's level is 0 where it needs nothing of its scope, else one more than the highest level that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np

from foldbatch.planning import table_loops
from foldbatch.planning.compiled import loops
from foldbatch.planning.constants import ModelConstants, model_constants, pack_sections
from foldbatch.planning.layout import LAYOUTS
from foldbatch.scheduler.trace import CellSignature, Index, Ints, element_order


def levels_of(
    cells: tuple[CellSignature, ...],
    scopes: tuple[tuple[int, ...], ...],
    calls: Sequence[Ints],
    elements: Sequence[Sequence[Ints]],
    values: int,
) -> list[Ints]:
    """Return the level of each call in its scope: per cell ``[n] int32``.

    Args:
        cells: the cells of a model.
        scopes: of each scope its cells, by number; calls of cells that are in none have level 0.
        calls: per cell its calls, see `foldbatch.scheduler.trace.Trace`.
        elements: per cell and sequence, the elements.
        values: one more than the largest value number.

    >>> cell = CellSignature("cell", 0, True, (), (0,), 1)
    >>> levels_of((cell,), ((0,),), [np.array([[1, 0], [2, 1]], np.int32)], [()], 3)
    [array([0, 1], dtype=int32)]
    """
    counts = [*map(len, calls)]
    fixed, batch = _level_inputs(cells, scopes)
    rows, memory = pack_sections(fixed, values, calls, elements, [np.zeros(sum(counts), np.int32)])
    if not loops().levels(fixed.table, batch, rows, memory):
        return _levels_in_any_order(cells, scopes, calls, elements, values)
    ends = accumulate(counts, initial=len(rows) - sum(counts))
    return [rows[first:last] for first, last in pairwise(ends)]


def _levels_in_any_order(
    cells: tuple[CellSignature, ...],
    scopes: tuple[tuple[int, ...], ...],
    calls: Sequence[Ints],
    elements: Sequence[Sequence[Ints]],
    values: int,
) -> list[Ints]:
    """Return levels where calls of a cell are not in the order of their values: of sorted ones."""
    orders = [np.argsort(rows[:, 0], kind="stable") for rows in calls]
    ordered_calls = [rows[order] for rows, order in zip(calls, orders, strict=True)]
    ordered_elements = [
        [
            part[element_order(rows[:, 1 + cell.arguments + sequence], order)]
            for sequence, part in enumerate(cell_elements)
        ]
        for cell, rows, cell_elements, order in zip(cells, calls, elements, orders, strict=True)
    ]
    ordered = levels_of(cells, scopes, ordered_calls, ordered_elements, values)
    levels = [np.empty_like(cell_levels) for cell_levels in ordered]
    for cell_levels, order, by_value in zip(levels, orders, ordered, strict=True):
        cell_levels[order] = by_value
    return levels


@lru_cache(256)
def _level_inputs(
    cells: tuple[CellSignature, ...], scopes: tuple[tuple[int, ...], ...]
) -> tuple[ModelConstants, Index]:
    """Return the model constants and an empty batch header for `table_loops.levels`, which finds levels only.

    Args:
        cells: the cells of the model.
        scopes: per scope of the policy, its cells.
    """
    fixed = model_constants(cells, 0, LAYOUTS["consumer"], scopes, ((),) * len(cells))
    return fixed, np.zeros(table_loops.Batch.size + table_loops.BATCH_FIELDS * len(cells), np.int64)
