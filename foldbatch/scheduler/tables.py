"""Control tables: from a merged trace to a Schedule, all of it vectorised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foldbatch.scheduler.layout import Layout, Rows, ranked, values_read
from foldbatch.scheduler.merge import Merged
from foldbatch.scheduler.policies import Plan, Policy
from foldbatch.scheduler.schedule import ALL, CellTable, Index, Schedule, Span, Step
from foldbatch.scheduler.sharing import Share, Sharing, leaves
from foldbatch.scheduler.trace import CellSignature, Operand, Trace


def build(
    merged: Merged,
    cells: Sequence[CellSignature],
    policy: Policy,
    layout: Layout,
    arenas: int,
    share: Share = leaves,
) -> Schedule:
    """Return the schedule of a merged trace whose levels come from `policy`.

    Args:
        merged: the batch.
        cells: the cells.
        policy: when calls run.
        layout: how rows are numbered.
        arenas: how many arenas the cells' operands and outputs name.
        share: which calls run as one.
    """
    trace = merged.trace
    plan = policy.plan(trace, cells)
    runs: list[Index] = []  # the calls in rank order; of those that are shared, one
    bounds: list[Index] = []
    for group in plan.groups:
        count = np.bincount(group) if len(group) else np.zeros(1, np.int64)
        many = len(count) > 1
        key = group.astype(np.uint16) if many and len(count) < 2**16 else group  # 16 bits: radix sort
        runs.append(np.argsort(key, kind="stable") if many else np.arange(len(group)))
        bounds.append(np.concatenate([[0], np.cumsum(count)]))
    shared = share(trace, cells, plan.groups)
    for k, sharing in enumerate(shared):
        if sharing is not None:
            runs[k] = sharing.representatives
            bounds[k] = np.concatenate([[0], np.cumsum(np.bincount(plan.groups[k][runs[k]]))])
    steps = _steps(cells, bounds, plan)
    fixed = [len(bound) > 2 or sharing is not None for bound, sharing in zip(bounds, shared, strict=True)]
    rows = layout(trace, cells, runs, fixed, arenas)
    calls = [ranked(trace, k, run) for k, run in enumerate(runs)]
    written = [
        calls[k][:, 0] if x is None else trace.calls[k][x.order, 0].astype(np.int64)
        for k, x in enumerate(shared)
    ]
    for k in _execution_order(steps):
        for output, arena in enumerate(cells[k].outputs):
            rows.append(arena, written[k] + output)
    _stand_in(trace, cells, shared, rows)
    touched = [np.zeros(used, bool) for used in rows.used]
    stored = [np.zeros(used, bool) for used in rows.used]
    spans: dict[int, list[Span]] = {}
    for phase in reversed(plan.phases):
        for k in phase.cells:
            spans[k] = [
                _span(trace, cells, k, operand, runs[k], calls[k], rows) for operand in cells[k].operands
            ]
        _claim(phase.cells, cells, spans, touched, stored)
    tables = []
    for k, cell in enumerate(cells):
        outputs = tuple(rows.of_value[written[k] + output] for output in range(len(cell.outputs)))
        segments = tuple(_segments(trace, cells, k, i, runs[k]) for i in range(len(cell.sequences)))
        sharing = shared[k]
        copies = None if sharing is None else sharing.copies
        examples = merged.examples(k)[runs[k]]
        tables.append(CellTable(runs[k], tuple(spans[k]), outputs, segments, examples, copies))
    zero_rows = tuple(np.flatnonzero(~mask) for mask in stored)
    return Schedule(tuple(tables), tuple(steps), tuple(rows.used), zero_rows, rows.of_value)


def _stand_in(
    trace: Trace, cells: Sequence[CellSignature], shared: Sequence[Sharing | None], rows: Rows
) -> None:
    """Let values of calls that do not run and that nobody reads be found in the rows of their likes."""
    for k, sharing in enumerate(shared):
        if sharing is not None and len(sharing.dropped):
            bases = trace.calls[k][:, 0]
            for output in range(len(cells[k].outputs)):
                found = rows.of_value[bases[sharing.instead] + output]
                rows.of_value[bases[sharing.dropped] + output] = found


def _steps(cells: Sequence[CellSignature], bounds: Sequence[Index], plan: Plan) -> list[Step]:
    steps: list[Step] = []
    for phase in plan.phases:
        members = phase.cells
        alone = len({cells[k].component for k in members}) == 1 and any(cells[k].recursive for k in members)
        stages = ("step",) if alone else ALL
        if alone:
            steps += [Step(k, ("before",), 0, int(bounds[k][-1])) for k in members]
        steps += [
            Step(k, stages, int(bounds[k][group]), int(bounds[k][group + 1])) for k, group in phase.turns
        ]
        if alone:
            steps += [Step(k, ("after",), 0, int(bounds[k][-1])) for k in members]
    return [step for step in steps if step.stop > step.start]


def _execution_order(steps: Sequence[Step]) -> list[int]:
    return list(dict.fromkeys(step.cell for step in steps))


def _span(
    trace: Trace,
    cells: Sequence[CellSignature],
    cell: int,
    operand: Operand,
    order: Index,
    calls: Index,
    rows: Rows,
) -> Span:
    at = rows.of_value[values_read(trace, cells, cell, operand, order, calls)]
    width = max(len(operand.columns), 1)
    start = int(at[0]) if len(at) else 0
    if np.array_equal(at, np.arange(start, start + len(at))):
        return Span(operand.arena, width, operand.sequence, len(at), start, None)
    repeats = int(np.bincount(at).max()) > 1
    return Span(operand.arena, width, operand.sequence, len(at), None, at, repeats)


def _claim(
    phase: Sequence[int],
    cells: Sequence[CellSignature],
    spans: dict[int, list[Span]],
    touched: Sequence[NDArray[np.bool_]],
    stored: Sequence[NDArray[np.bool_]],
) -> None:
    """Decide which operands may store cotangents instead of adding to what is there.

    Phases come in backward order. Within one, the steps of different operands interleave, so an
    operand may store only rows that no other operand of the phase, and no later phase, reads.
    """
    readers = [np.zeros(len(mask), np.int64) for mask in touched]
    differentiable = [
        (k, i, span) for k in phase for i, span in enumerate(spans[k]) if cells[k].operands[i].differentiable
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
