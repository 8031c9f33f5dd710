"""Control tables: from a merged trace to a Schedule, all of it vectorised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foldbatch.scheduler.layout import Layout, Rows, values_read
from foldbatch.scheduler.merge import Merged
from foldbatch.scheduler.policies import Policy
from foldbatch.scheduler.schedule import ALL, CellTable, Index, Schedule, Span, Step
from foldbatch.scheduler.sharing import share
from foldbatch.scheduler.trace import CellSignature, Trace


def build(
    merged: Merged, cells: Sequence[CellSignature], policy: Policy, layout: Layout, arenas: int
) -> Schedule:
    """Return the schedule of a merged trace whose levels come from `policy`.

    Args:
        merged: the batch.
        cells: the cells.
        policy: how cells interleave.
        layout: how rows are numbered.
        arenas: how many arenas the cells' operands and outputs name.
    """
    trace = merged.trace
    orders: list[Index] = []
    bounds: list[Index] = []
    for levels in trace.levels:
        count = np.bincount(levels) if len(levels) else np.zeros(1, np.int64)
        many = len(count) > 1
        key = levels.astype(np.uint16) if many and len(count) < 2**16 else levels  # 16 bits: radix sort
        orders.append(np.argsort(key, kind="stable") if many else np.arange(len(levels)))
        bounds.append(np.concatenate([[0], np.cumsum(count)]))
    shared = [
        share(trace.feeds[k], len(orders[k])) if cell.shareable else None for k, cell in enumerate(cells)
    ]
    for k, sharing in enumerate(shared):
        if sharing is not None:
            orders[k], bounds[k] = sharing.order, np.array([0, len(sharing.copies) - 1])
    steps = _steps(cells, bounds, policy)
    fixed = [len(bound) > 2 or sharing is not None for bound, sharing in zip(bounds, shared, strict=True)]
    rows = layout(trace, cells, orders, fixed, arenas)
    for k in _execution_order(steps):
        for output, arena in enumerate(cells[k].outputs):
            rows.append(arena, trace.calls[k][:, 0][orders[k]].astype(np.int64) + output)
    touched = [np.zeros(used, bool) for used in rows.used]
    stored = [np.zeros(used, bool) for used in rows.used]
    spans: dict[int, list[Span]] = {}
    for group in _groups_reversed(cells, policy):
        for k in group:
            spans[k] = [_span(trace, cells, k, i, orders[k], rows) for i in range(len(cells[k].operands))]
        _claim(group, cells, spans, touched, stored)
    tables = []
    for k, cell in enumerate(cells):
        bases = trace.calls[k][:, 0][orders[k]].astype(np.int64)
        outputs = tuple(rows.of_value[bases + output] for output in range(len(cell.outputs)))
        segments = tuple(_segments(trace, cells, k, i, orders[k]) for i in range(len(cell.sequences)))
        sharing = shared[k]
        order = orders[k] if sharing is None else sharing.representatives
        copies = None if sharing is None else sharing.copies
        tables.append(CellTable(order, tuple(spans[k]), outputs, segments, merged.examples(k)[order], copies))
    zero_rows = tuple(np.flatnonzero(~mask) for mask in stored)
    return Schedule(tuple(tables), tuple(steps), tuple(rows.used), zero_rows, rows.of_value)


def _steps(cells: Sequence[CellSignature], bounds: Sequence[Index], policy: Policy) -> list[Step]:
    steps: list[Step] = []
    for group in reversed(_groups_reversed(cells, policy)):
        alone = len({cells[k].component for k in group}) == 1 and any(cells[k].recursive for k in group)
        total = {k: int(bounds[k][-1]) for k in group}
        stages = ("step",) if alone else ALL
        if alone:
            steps += [Step(k, ("before",), 0, total[k]) for k in group]
        for level in range(max(len(bounds[k]) for k in group) - 1):
            for k in group:
                if level + 1 < len(bounds[k]):
                    steps.append(Step(k, stages, int(bounds[k][level]), int(bounds[k][level + 1])))
        if alone:
            steps += [Step(k, ("after",), 0, total[k]) for k in group]
    return [step for step in steps if step.stop > step.start]


def _groups_reversed(cells: Sequence[CellSignature], policy: Policy) -> list[list[int]]:
    """Return the cells that run interleaved, last group first."""
    groups = sorted({policy.group(cell) for cell in cells}, reverse=True)
    return [[k for k, cell in enumerate(cells) if policy.group(cell) == group] for group in groups]


def _execution_order(steps: Sequence[Step]) -> list[int]:
    return list(dict.fromkeys(step.cell for step in steps))


def _span(
    trace: Trace, cells: Sequence[CellSignature], cell: int, number: int, order: Index, rows: Rows
) -> Span:
    operand = cells[cell].operands[number]
    at = rows.of_value[values_read(trace, cells, cell, operand, order)]
    width = max(len(operand.columns), 1)
    start = int(at[0]) if len(at) else 0
    if np.array_equal(at, np.arange(start, start + len(at))):
        return Span(operand.arena, width, operand.sequence, len(at), start, None)
    repeats = int(np.bincount(at).max()) > 1
    return Span(operand.arena, width, operand.sequence, len(at), None, at, repeats)


def _claim(
    group: Sequence[int],
    cells: Sequence[CellSignature],
    spans: dict[int, list[Span]],
    touched: Sequence[NDArray[np.bool_]],
    stored: Sequence[NDArray[np.bool_]],
) -> None:
    """Decide which operands may store cotangents instead of adding to what is there.

    Groups come in backward order. Within one, the steps of different operands interleave, so an
    operand may store only rows that no other operand of the group, and no later group, reads.
    """
    readers = [np.zeros(len(mask), np.int64) for mask in touched]
    differentiable = [
        (k, i, span) for k in group for i, span in enumerate(spans[k]) if cells[k].operands[i].differentiable
    ]
    for _, _, span in differentiable:
        if span.rows is None:
            readers[span.arena][_extent(span)] += 1
        else:
            readers[span.arena] += np.bincount(span.rows, minlength=len(readers[span.arena]))
    for k, i, span in differentiable:
        if span.rows is None:
            extent = _extent(span)
            if not touched[span.arena][extent].any() and (readers[span.arena][extent] == 1).all():
                stored[span.arena][extent] = True
                spans[k][i] = replace(span, first=True)
    for arena, count in enumerate(readers):
        touched[arena][count > 0] = True


def _extent(span: Span) -> slice:
    assert span.start is not None
    return slice(span.start, span.start + span.size)


def _segments(trace: Trace, cells: Sequence[CellSignature], cell: int, sequence: int, order: Index) -> Index:
    lengths = trace.calls[cell][:, 1 + cells[cell].arguments + sequence].astype(np.int64)
    return np.concatenate([[0], np.cumsum(lengths[order])])
