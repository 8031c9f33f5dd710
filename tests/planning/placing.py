"""From a plan to a Schedule, all of it vectorised in NumPy: an oracle of `foldbatch.planning.tables`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from foldbatch.planning.layout import Layout
from foldbatch.planning.merge import Merged
from foldbatch.planning.policies import COMPILED, Costs, Policy, RunOrder
from foldbatch.planning.sharing import Share, Sharing, leaves
from foldbatch.planning.tables import planned
from foldbatch.scheduler.components import is_recursion
from foldbatch.scheduler.schedule import ALL, CellTable, Index, RowSpan, Schedule, Step
from foldbatch.scheduler.trace import CellSignature, Trace, lengths_of
from tests.planning.arithmetic import consecutive, sort
from tests.planning.rows import NUMBERINGS, RowNumbering, values_read

_NONE = np.zeros(0, np.int64)


def build(
    merged: Merged,
    cells: Sequence[CellSignature],
    policy: Policy,
    layout: Layout,
    arenas: int,
    share: Share = leaves,
    costs: Costs = COMPILED,
) -> Schedule:
    """Return the schedule of a merged trace, as `foldbatch.planning.tables.build` does."""
    cells = tuple(cells)
    plan, shared = planned(merged.trace, cells, policy, share, costs)
    return placed(merged, cells, plan, shared, layout, arenas)


def placed(
    merged: Merged,
    cells: tuple[CellSignature, ...],
    plan: RunOrder,
    shared: Sequence[Sharing | None],
    layout: Layout,
    arenas: int,
) -> Schedule:
    """Return the schedule of a merged trace, given when calls run, and which are shared."""
    trace = merged.trace
    orders, bounds = _ranks(plan, shared)
    steps = _steps(cells, bounds, plan)
    rows = NUMBERINGS[layout.name](trace, cells, orders, arenas)
    runs = [np.arange(len(trace.calls[k])) if run is None else run for k, run in enumerate(orders)]
    outputs: list[tuple[Index, ...]] = [(_NONE,) * len(cell.outputs) for cell in cells]
    for k in dict.fromkeys(map(itemgetter(0), steps)):  # in the order of execution
        sharing = shared[k]
        calls = runs[k] if sharing is None else sharing.order
        outputs[k] = tuple(
            [
                rows.append_results(arena, trace.calls[k], calls, output)
                for output, arena in enumerate(cells[k].outputs)
            ]
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
    return Schedule(tuple(tables), tuple(steps), tuple(rows.used), zero_rows, rows.of_value, plan.reason)


def _ranks(plan: RunOrder, shared: Sequence[Sharing | None]) -> tuple[list[Index | None], list[list[int]]]:
    """Return, per cell, its calls in the order of their groups, and where the groups begin and end.

    Of shared calls only the first is listed. A cell whose calls are all one group may run them in any
    order, so its order is None. Shapes: each order ``[n]``; bounds ``groups + 1``.
    """
    orders: list[Index | None] = []
    bounds: list[list[int]] = []
    for group, sharing, size in zip(plan.groups, shared, plan.sizes, strict=True):
        if sharing is not None:
            order = sharing.representatives
            ends = np.cumsum(np.bincount(group[order])).tolist() if size > 1 else [len(order)]
            orders.append(order)
            bounds.append([0, *ends])
        elif size > 1:
            order, starts = sort(group, size)
            orders.append(order)
            bounds.append(starts.tolist())
        else:
            orders.append(None)
            bounds.append([0, len(group)])
    return orders, bounds


def _stand_in(
    trace: Trace, cells: Sequence[CellSignature], shared: Sequence[Sharing | None], rows: RowNumbering
) -> None:
    """Give the values of dropped calls the rows of the calls that run instead of them."""
    for k, sharing in enumerate(shared):
        if sharing is not None and len(sharing.dropped):
            bases = trace.calls[k][:, 0]
            for output in range(len(cells[k].outputs)):
                rows_of_representatives = rows.of_value[bases[sharing.instead] + output]
                rows.of_value[bases[sharing.dropped] + output] = rows_of_representatives


def _steps(cells: tuple[CellSignature, ...], bounds: Sequence[list[int]], plan: RunOrder) -> list[Step]:
    """Return the steps of a plan; `bounds` has, per cell, the first rank of each turn, and the end."""
    steps: list[Step] = []
    for phase in plan.phases:
        members = phase.cells
        alone = is_recursion(cells, members)
        stages = ("step",) if alone else ALL
        sizes = [(k, bounds[k][-1]) for k in members if bounds[k][-1]] if alone else []
        steps += [Step(k, ("before",), 0, stop) for k, stop in sizes]
        if len(members) == 1:  # it takes its turns in order
            (k,) = members
            steps += [Step(k, stages, start, stop) for start, stop in pairwise(bounds[k]) if stop > start]
        else:
            turns = [(k, bounds[k][group], bounds[k][group + 1]) for k, group in phase.turns]
            steps += [Step(k, stages, start, stop) for k, start, stop in turns if stop > start]
        steps += [Step(k, ("after",), 0, stop) for k, stop in sizes]
    return steps


class _ReadRows(NamedTuple):
    """The rows that an operand reads: `size` rows from `start` on, or else the rows in `rows`.

    Shapes: ``rows: [size]``; ``counts: [1 + last row read]``: how often each row of the arena is read.
    """

    start: int | None
    size: int
    rows: Index | None = None
    counts: Index | None = None


def _operands(
    trace: Trace,
    cells: tuple[CellSignature, ...],
    orders: Sequence[Index | None],
    rows: RowNumbering,
    plan: RunOrder,
) -> list[tuple[RowSpan, ...]]:
    """Return where each cell's operands lie, and which of them may store cotangents.

    Shapes: orders, per cell ``[n]``, as from `_ranks`.
    """
    places = {
        (k, number): _place(trace, cells, k, number, orders[k], rows)
        for k, cell in enumerate(cells)
        for number in range(len(cell.operands))
    }
    first = _first(cells, places, plan, len(rows.used))
    spans: list[tuple[RowSpan, ...]] = [() for _ in cells]
    for key, (start, size, rows_read, counts) in places.items():
        k, number = key
        operand = cells[k].operands[number]
        repeats = counts is not None and int(counts.max()) > 1
        width = len(operand.columns) or 1
        span = RowSpan(operand.arena, width, operand.sequence, size, start, rows_read, repeats, key in first)
        spans[k] += (span,)
    return spans


def _place(
    trace: Trace,
    cells: Sequence[CellSignature],
    cell: int,
    number: int,
    order: Index | None,
    rows: RowNumbering,
) -> _ReadRows:
    """Return the rows that an operand reads, in rank order: a run of consecutive ones, or all of them."""
    if (cell, number) in rows.runs:
        return _ReadRows(*rows.runs[cell, number])
    operand = cells[cell].operands[number]
    rows_read = rows.of_value.take(values_read(trace, cells, cell, operand, order))
    if not len(rows_read):
        return _ReadRows(0, 0)
    if consecutive(rows_read):
        return _ReadRows(int(rows_read[0]), len(rows_read))
    return _ReadRows(None, len(rows_read), rows_read, np.bincount(rows_read))


def _first(
    cells: tuple[CellSignature, ...], places: Mapping[tuple[int, int], _ReadRows], plan: RunOrder, arenas: int
) -> set[tuple[int, int]]:
    """Return the operands, by cell and number, that may store cotangents instead of adding to what is there.

    Backward, phases run in reverse order, and the steps of one phase interleave. So an operand may store if
    its rows are consecutive and no other operand of its phase, or of a later phase, reads any of them.
    """
    first = set()
    readers: list[list[tuple[_ReadRows, tuple[int, int] | None]]] = [[] for _ in range(arenas)]
    for phase in reversed(plan.phases):
        operands: dict[int, list[tuple[_ReadRows, tuple[int, int] | None]]] = {}
        for arena, key in _differentiable(cells, phase.cells):
            operands.setdefault(arena, []).append((places[key], key))
        for arena, candidates in operands.items():
            first |= _alone([*candidates, *readers[arena]])
            readers[arena] += [(place, None) for place, _ in candidates]
    return first


@lru_cache(256)
def _differentiable(
    cells: tuple[CellSignature, ...], members: tuple[int, ...]
) -> list[tuple[int, tuple[int, int]]]:
    """Return the operands of some cells that have cotangents: the arena, and the cell and number."""
    return [
        (operand.arena, (k, number))
        for k in members
        for number, operand in enumerate(cells[k].operands)
        if operand.differentiable
    ]


def _alone(readers: Sequence[tuple[_ReadRows, tuple[int, int] | None]]) -> set[tuple[int, int]]:
    """Return the keys of the operands whose rows follow each other, and none of the others reads any.

    >>> _alone([(_ReadRows(0, 2), (0, 0)), (_ReadRows(2, 2), (1, 0)), (_ReadRows(3, 1), None)])
    {(0, 0)}
    """
    runs = sorted([(p.start, p.start + p.size, key or ()) for p, key in readers if p.start is not None])
    scattered = [place.counts for place, _ in readers if place.counts is not None]
    alone = set()
    reach = 0
    for number, (start, stop, key) in enumerate(runs, 1):
        following = runs[number][0] if number < len(runs) else stop
        apart = start == stop or (reach <= start and stop <= following)
        if key and apart and not any(counts[start:stop].any() for counts in scattered):
            alone.add(key)
        reach = max(reach, stop)
    return alone


def _zero_rows(tables: Sequence[CellTable], used: Sequence[int]) -> tuple[Index, ...]:
    """Return, per arena, the rows whose cotangents no operand stores. Shapes: each ``[rows] int64``."""
    stored: list[list[tuple[int, int]]] = [[] for _ in used]
    for table in tables:
        for span in table.operands:
            if span.first:
                assert span.start is not None
                stored[span.arena].append((span.start, span.start + span.size))
    zero_rows = []
    for runs, rows in zip(stored, used, strict=True):
        gaps = []
        stop = 0
        for start, end in [*sorted(runs), (rows, rows)]:
            if start > stop:
                gaps.append(np.arange(stop, start))
            stop = max(stop, end)
        zero_rows.append(gaps[0] if len(gaps) == 1 else np.concatenate([_NONE, *gaps]) if gaps else _NONE)
    return tuple(zero_rows)


def _segments(trace: Trace, cells: Sequence[CellSignature], cell: int, sequence: int, order: Index) -> Index:
    """Return where the elements of each call's sequence begin: ``order: [n]`` to ``[n + 1]``."""
    segments = np.zeros(len(order) + 1, np.int64)
    np.cumsum(lengths_of(trace, cells, cell, sequence).take(order), out=segments[1:])
    return segments
