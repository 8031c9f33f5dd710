"""Control tables: from a merged trace to a Schedule, all of it vectorised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foldbatch.scheduler.arithmetic import NUMPY, Arithmetic
from foldbatch.scheduler.layout import Layout, Rows, values_read
from foldbatch.scheduler.merge import Merged
from foldbatch.scheduler.policies import Plan, Policy
from foldbatch.scheduler.schedule import ALL, CellTable, Index, Schedule, Span, Step
from foldbatch.scheduler.sharing import Share, Sharing, leaves
from foldbatch.scheduler.trace import CellSignature, Trace, lengths_of


def build(
    merged: Merged,
    cells: Sequence[CellSignature],
    policy: Policy,
    layout: Layout,
    arenas: int,
    share: Share = leaves,
    arithmetic: Arithmetic = NUMPY,
) -> Schedule:
    """Return the schedule of a merged trace whose levels come from `policy`.

    Args:
        merged: the batch.
        cells: the cells.
        policy: when calls run.
        layout: how rows are numbered.
        arenas: how many arenas the cells' operands and outputs name.
        share: which calls run as one.
        arithmetic: what computes on whole arrays.
    """
    trace = merged.trace
    plan = policy.plan(trace, cells)
    shared = share(trace, cells, plan.groups, arithmetic)
    orders, bounds = _ranks(plan, shared, arithmetic)
    rows = layout(trace, cells, orders, arenas, arithmetic)
    runs = [np.arange(len(trace.calls[k])) if run is None else run for k, run in enumerate(orders)]
    steps = _steps(cells, bounds, plan)
    outputs: list[tuple[Index, ...]] = [(np.zeros(0, np.int64),) * len(cell.outputs) for cell in cells]
    for k in dict.fromkeys([step.cell for step in steps]):  # in the order of execution
        sharing = shared[k]
        calls = orders[k] if sharing is None else sharing.order
        bases = (
            trace.calls[k][:, 0].astype(np.int64)
            if calls is None
            else arithmetic.read(trace.calls[k], [0], calls)
        )
        outputs[k] = tuple(
            [rows.append_results(arena, bases, output) for output, arena in enumerate(cells[k].outputs)]
        )
    _stand_in(trace, cells, shared, rows)
    operands = _operands(trace, cells, orders, rows, plan)
    tables = []
    for k, cell in enumerate(cells):
        segments = tuple([_segments(trace, cells, k, i, runs[k]) for i in range(len(cell.sequences))])
        sharing = shared[k]
        copies = None if sharing is None else sharing.copies
        tables.append(CellTable(runs[k], operands[k], outputs[k], segments, merged.counts[k], copies))
    zero_rows = _zero_rows(tables, rows.used)
    return Schedule(tuple(tables), tuple(steps), tuple(rows.used), zero_rows, rows.of_value)


def _ranks(
    plan: Plan, shared: Sequence[Sharing | None], arithmetic: Arithmetic
) -> tuple[list[Index | None], list[list[int]]]:
    """Return, per cell, its calls group by group, and where the groups begin and end.

    Of calls that are shared, one stands for all. None is for a cell whose order is free: all its calls
    are one group.
    """
    orders: list[Index | None] = []
    bounds: list[list[int]] = []
    groups = [0] * len(shared)
    for phase in plan.phases:
        for k, _ in phase.turns:
            groups[k] += 1
    for group, sharing, size in zip(plan.groups, shared, groups, strict=True):
        if sharing is not None:
            order = sharing.representatives
            ends = np.cumsum(np.bincount(group[order])).tolist() if size > 1 else [len(order)]
            orders.append(order)
            bounds.append([0, *ends])
        elif size > 1:
            order, starts = arithmetic.sort(group, size)
            orders.append(order)
            bounds.append(starts.tolist())
        else:
            orders.append(None)
            bounds.append([0, len(group)])
    return orders, bounds


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


def _steps(cells: Sequence[CellSignature], bounds: Sequence[list[int]], plan: Plan) -> list[Step]:
    steps: list[Step] = []
    for phase in plan.phases:
        members = phase.cells
        alone = len({cells[k].component for k in members}) == 1 and any([cells[k].recursive for k in members])
        stages = ("step",) if alone else ALL
        if alone:
            steps += [Step(k, ("before",), 0, bounds[k][-1]) for k in members if bounds[k][-1]]
        for k, group in phase.turns:
            start, stop = bounds[k][group], bounds[k][group + 1]
            if stop > start:
                steps.append(Step(k, stages, start, stop))
        if alone:
            steps += [Step(k, ("after",), 0, bounds[k][-1]) for k in members if bounds[k][-1]]
    return steps


def _operands(
    trace: Trace, cells: Sequence[CellSignature], orders: Sequence[Index | None], rows: Rows, plan: Plan
) -> list[tuple[Span, ...]]:
    """Return where each cell's operands lie, and which of them may store cotangents.

    An operand may store them, instead of adding to what is there, if no other one has been there before,
    that is, reads any of its rows in a later phase, or in the same, where the steps of different operands
    interleave.
    """
    spans: list[tuple[Span, ...]] = [()] * len(cells)
    readers: list[list[_Reader]] = [[] for _ in rows.used]  # per arena; phases come in backward order
    for phase in reversed(plan.phases):
        found = {
            k: [_span(trace, cells, k, number, orders[k], rows) for number in range(len(cells[k].operands))]
            for k in phase.cells
        }
        differentiable = [
            reader
            for k in phase.cells
            for reader, operand in zip(found[k], cells[k].operands, strict=True)
            if operand.differentiable
        ]
        for reader in differentiable:
            readers[reader.span.arena].append(reader)
        for reader in differentiable:
            span = reader.span
            if span.rows is None and not any([reader.meets(other) for other in readers[span.arena]]):
                reader.span = replace(span, first=True)
        for k in phase.cells:
            spans[k] = tuple([reader.span for reader in found[k]])
    return spans


@dataclass(slots=True, eq=False)
class _Reader:
    """An operand's span, and how often it reads each row up to some, where these are not consecutive."""

    span: Span
    counts: Index | None

    def meets(self, other: _Reader) -> bool:
        """Return whether another operand reads any of this one's rows, which are consecutive."""
        start = self.span.start
        assert start is not None
        if other is self:
            return False
        if other.counts is not None:
            return bool(other.counts[start : start + self.span.size].any())
        assert other.span.start is not None
        return max(start, other.span.start) < min(start + self.span.size, other.span.start + other.span.size)


def _span(
    trace: Trace, cells: Sequence[CellSignature], cell: int, number: int, order: Index | None, rows: Rows
) -> _Reader:
    operand = cells[cell].operands[number]
    width = max(len(operand.columns), 1)
    if (cell, number) in rows.runs:
        start, size = rows.runs[cell, number]
        return _Reader(Span(operand.arena, width, operand.sequence, size, start, None), None)
    at = rows.of_value[values_read(trace, cells, cell, operand, order, rows.arithmetic)]
    if not len(at) or rows.arithmetic.consecutive(at):
        start = int(at[0]) if len(at) else 0
        return _Reader(Span(operand.arena, width, operand.sequence, len(at), start, None), None)
    counts = np.bincount(at)
    repeats = int(counts.max()) > 1
    return _Reader(Span(operand.arena, width, operand.sequence, len(at), None, at, repeats), counts)


def _zero_rows(tables: Sequence[CellTable], used: Sequence[int]) -> tuple[Index, ...]:
    """Return, per arena, the rows whose cotangents no operand stores: what lies between the stored ones."""
    stored: list[list[tuple[int, int]]] = [[] for _ in used]
    for span in [span for table in tables for span in table.operands if span.first]:
        assert span.start is not None
        stored[span.arena].append((span.start, span.start + span.size))
    found = []
    for runs, rows in zip(stored, used, strict=True):
        gaps = []
        stop = 0
        for start, end in [*sorted(runs), (rows, rows)]:
            if start > stop:
                gaps.append(np.arange(stop, start))
            stop = max(stop, end)
        found.append(np.concatenate(gaps) if gaps else np.zeros(0, np.int64))
    return tuple(found)


def _segments(trace: Trace, cells: Sequence[CellSignature], cell: int, sequence: int, order: Index) -> Index:
    lengths = lengths_of(trace, cells, cell, sequence).astype(np.int64)
    return np.concatenate([[0], np.cumsum(lengths[order])])
