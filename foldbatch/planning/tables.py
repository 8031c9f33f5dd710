"""Control tables: from a merged trace to a schedule, in one array that `table_loops` writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain, compress, islice, pairwise, zip_longest
from typing import Any

import numpy as np

from foldbatch.planning import table_loops as loops
from foldbatch.planning.compiled import loops as functions
from foldbatch.planning.constants import Flags, ModelConstants, allocate, model_constants, pack_sections
from foldbatch.planning.facts import STAGE_NAMES
from foldbatch.planning.layout import Layout
from foldbatch.planning.merge import Merged
from foldbatch.planning.policies import COMPILED, Costs, Episode, Policy, RunOrder, levels
from foldbatch.planning.sharing import Share, Sharing, leaves, none_shared
from foldbatch.scheduler.components import components
from foldbatch.scheduler.schedule import CellTable, Flat, Index, RowSpan, Schedule, Step, late_schedule
from foldbatch.scheduler.trace import CellSignature, Column, Columns, Ints, Trace
from foldbatch.system.processes import no_garbage


@lru_cache(256)
def planner_inputs(
    cells: tuple[CellSignature, ...], arenas: int, layout: Layout, share: Share, integers: Flags
) -> tuple[ModelConstants, Index | None]:
    """Return the model constants and the batch header for the one-call planner.

    The header is None if batches of this model cannot be planned in one call: where cells call each other, or
    calls that are shared have more than one feed.
    """
    fixed = model_constants(cells, arenas, layout, components(cells), integers)
    shares = [cell.shareable and share is leaves for cell in cells]
    childless = any(cell.repeatable and cell.sequences and not cell.arguments for cell in cells)
    unequal_feeds = any(
        shared and flags not in ((True,), ()) for shared, flags in zip(shares, integers, strict=True)
    )
    mutual = any(len(members) > 1 for members in components(cells))
    if mutual or unequal_feeds or share not in (leaves, none_shared) or (childless and share is leaves):
        return fixed, None
    records = [(loops.FIND, loops.FIND if shared else loops.UNSHARED, 0, 0, 0) for shared in shares]
    return fixed, np.array([0, 0, 0, *chain.from_iterable(records)], np.int64)


def build(
    merged: Merged,
    cells: Sequence[CellSignature],
    policy: Policy,
    layout: Layout,
    arenas: int,
    share: Share = leaves,
    costs: Costs = COMPILED,
) -> Schedule:
    """Return the schedule of a merged trace whose levels, if it has any, come from `policy`.

    One call of a loop makes it where `planner_inputs` has a header; else groups and shares are planned first.
    """
    trace, cells = merged.trace, tuple(cells)
    integers = merged.trace.form.integers
    batch = None
    if policy.alone is not None:
        fixed, batch = planner_inputs(cells, arenas, layout, share, integers)
    if batch is not None:
        if trace.form.packed and trace.packed is not None and not fixed.per_element:
            feeds: Sequence[Sequence[object]] = integers  # all that is read of them is packed
            rows = trace.packed.copy()
            memory = allocate(fixed, trace.values, trace.counts, 0)
        else:
            feeds = trace.feeds
            data = [
                x for columns, flags in zip(feeds, integers, strict=True) for x in compress(columns, flags)
            ]
            sections = [np.empty(trace.size, np.int32), *data]
            rows, memory = pack_sections(fixed, trace.values, trace.calls, trace.elements, sections)
        if functions().write_tables(fixed.table, batch, rows, memory):
            return _schedule(merged, cells, arenas, memory, rows, feeds, integers, policy.alone or "")
    with no_garbage():  # the turns of a long chain are very many
        plan, shared = planned(trace, cells, policy, share, costs)
    records = list[int]()
    shares = list[Index]()
    end = 0
    for size, sharing in zip(plan.sizes, shared, strict=True):
        if sharing is None:
            records += (size, loops.UNSHARED, 0, 0, 0)
        else:
            records += (size, end, len(sharing.copies) - 1, len(sharing.order), len(sharing.dropped))
            shares += (sharing.order, sharing.copies, sharing.dropped, sharing.instead)
            end += len(sharing.copies) + len(sharing.order) + 2 * len(sharing.dropped)
    turns = [
        number for members, turns in plan.phases if len(members) > 1 for turn in turns for number in turn
    ]
    begin = loops.Batch.size + len(records)
    integers = ((),) * len(cells)
    head = np.array([begin, begin + len(turns), end, *records, *turns], np.int64)
    fixed = model_constants(cells, arenas, layout, tuple([members for members, _ in plan.phases]), integers)
    rows, memory = pack_sections(fixed, trace.values, trace.calls, trace.elements, plan.groups)
    functions().write_tables(fixed.table, np.concatenate([head, *shares]), rows, memory)
    return _schedule(merged, cells, arenas, memory, rows, trace.feeds, integers, plan.reason)


def planned(
    trace: Trace, cells: tuple[CellSignature, ...], policy: Policy, share: Share, costs: Costs
) -> tuple[RunOrder, list[Sharing | None]]:
    """Return when calls run, and which are shared; see `build`."""
    if len(trace.levels) < len(cells):
        trace = replace(trace, levels=levels(policy, cells, trace.calls, trace.elements, trace.values))
    plan = policy.plan(trace, cells, costs)
    if sum(plan.sizes) > trace.size:  # more groups than there is room for: some are empty
        plan = _without_empty_groups(plan)
    return plan, share(trace, cells, plan.groups)


def _without_empty_groups(plan: RunOrder) -> RunOrder:
    """Return the same order of calls, in groups each of which has a call."""
    groups, sizes, numbers = list[Ints](), list[int](), list[dict[int, int]]()
    for group in plan.groups:
        present, renumbered = np.unique(group, return_inverse=True)
        groups.append(renumbered.astype(np.int32))
        sizes.append(len(present))
        numbers.append({number: i for i, number in enumerate(present.tolist())})
    phases = [
        Episode(members, [(k, numbers[k][group]) for k, group in turns if group in numbers[k]])
        for members, turns in plan.phases
    ]
    return RunOrder(tuple(groups), tuple(sizes), tuple(phases), plan.reason)


def _schedule(
    merged: Merged,
    cells: tuple[CellSignature, ...],
    arenas: int,
    memory: Index,
    rows: Ints,
    data_columns: Sequence[Sequence[Any]],
    integers: Flags,
    reason: str,
) -> Schedule:
    """Return the schedule that `table_loops.write_tables` has written.

    `rows` is the packed trace, which ends in the ordered integer feeds; `data_columns` are all feeds.
    """
    counts = merged.trace.counts
    header = memory[: loops.Tables.size].tolist()
    orders = _orders(memory, header, counts)
    feeds: list[tuple[Column, ...]] = []
    end = header[loops.Tables.feeds_at]
    for order, count, columns, flags in zip(orders, counts, data_columns, integers, strict=True):
        arranged: tuple[Column, ...] = ()
        for data, integer in zip_longest(columns, flags) if columns else ():
            arranged += (rows[end : end + len(order)] if integer else data.take(order, axis=0),)
            end += count if integer else 0
        feeds.append(arranged)
    return _of_flat(cells, arenas, merged.counts, Flat(memory, header, orders, tuple(feeds)), reason)


def schedule_in(
    memory: Index,
    cells: Sequence[CellSignature],
    arenas: int,
    calls: Sequence[int],
    counts: Sequence[Index] | Index,
    feeds: Columns,
    reason: str,
) -> Schedule:
    """Return the schedule whose memory another process has written; see `Flat`.

    Args:
        memory: the array of `Flat`.
        cells: the signatures of the model's cells, and
        arenas: how many arenas it has.
        calls: per cell, how many calls the batch has of it.
        counts: per cell ``[examples] int64``: how many of them each example makes.
        feeds: per cell and feed, the data in rank order.
        reason: why calls are grouped as they are, see `Schedule`.
    """
    header = memory[: loops.Tables.size].tolist()
    flat = Flat(memory, header, _orders(memory, header, calls), feeds)
    return _of_flat(tuple(cells), arenas, counts, flat, reason)


def _orders(memory: Index, header: Sequence[int], calls: Sequence[int]) -> tuple[Index, ...]:
    """Return the order of each cell's calls, read from the memory of `table_loops.write_tables`."""
    first, records = header[loops.Tables.ranks], header[loops.Tables.cells_at] + loops.Cell.distinct
    distinct = memory[records : header[loops.Tables.operands_at] : loops.Cell.size].tolist()
    orders = []
    for count, of_cell in zip(distinct, calls, strict=True):
        orders.append(memory[first : first + count])
        first += of_cell
    return tuple(orders)


def _of_flat(
    cells: tuple[CellSignature, ...], arenas: int, counts: Sequence[Index] | Index, flat: Flat, reason: str
) -> Schedule:
    return late_schedule(flat, partial(_schedule_part, cells, counts, arenas, flat), reason)


def _schedule_part(
    cells: tuple[CellSignature, ...], counts: Sequence[Index] | Index, arenas: int, flat: Flat, name: str
) -> object:
    """Return an attribute of a `Schedule`, read from the memory of `table_loops.write_tables`."""
    memory, header = flat.memory, flat.header
    match name:
        case "arena_rows":
            return tuple(memory[header[loops.Tables.zeros] - arenas : header[loops.Tables.zeros]].tolist())
        case "zero_rows":
            zeros = pairwise(
                [0, *memory[header[loops.Tables.ends] : header[loops.Tables.bases] - 1].tolist()]
            )
            rows = memory[header[loops.Tables.zeros] :]
            return tuple([rows[first:last] for first, last in zeros])
        case "row_of":
            return memory[header[loops.Tables.row_of] : header[loops.Tables.ranks]]
        case "steps":
            begin, fields = header[loops.Tables.steps_at], loops.StepRecord.size
            steps = memory[begin : begin + fields * header[loops.Tables.steps]].reshape(-1, fields).tolist()
            return tuple([Step(k, STAGE_NAMES[stage], start, stop) for k, stage, start, stop in steps])
        case _:
            return _cell_tables(cells, counts, flat)


def _cell_tables(
    cells: tuple[CellSignature, ...], counts: Sequence[Index] | Index, flat: Flat
) -> tuple[CellTable, ...]:
    """Return the control table of each cell, read from that memory."""
    memory, header = flat.memory, flat.header
    facts = iter(memory[header[loops.Tables.facts_at] : header[loops.Tables.zeros]].tolist())
    index = memory[header[loops.Tables.index] :]
    spans = iter(
        memory[header[loops.Tables.operands_at] : header[loops.Tables.sequences_at]]
        .reshape(-1, loops.Operand.size)
        .tolist()
    )
    shapes = (
        memory[header[loops.Tables.cells_at] : header[loops.Tables.operands_at]]
        .reshape(-1, loops.Cell.size)
        .tolist()
    )
    next(facts)
    tables = []
    for k, cell in enumerate(cells):
        ranks, _, copies = (next(facts) for _ in range(3))
        running = shapes[k][loops.Cell.running]
        row_spans = []
        for operand in cell.operands:
            start, size, place, repeats, first = next(spans)[loops.Operand.start : loops.Operand.fact]
            rows = None if place < 0 else index[place : place + size]
            span = operand.arena, len(operand.columns) or 1, operand.sequence, size
            row_spans.append(
                RowSpan(*span, start if rows is None else None, rows, bool(repeats), bool(first))
            )
            next(islice(facts, 4, None))
        outputs = [index[place : place + running] for place in islice(facts, len(cell.outputs))]
        segments = []
        for _ in cell.sequences:
            place, _, _ = (next(facts) for _ in range(3))
            segments.append(index[place : place + ranks + 1])
        shared = None if copies < 0 else index[copies : copies + ranks + 1]
        tables.append(
            CellTable(flat.orders[k], tuple(row_spans), tuple(outputs), tuple(segments), counts[k], shared)
        )
    return tuple(tables)
