"""A batch's schedule and launches by the compiled loops of `table_loops`.

The functions here have the form of `scheduler.tables.build` and `bindings.launch_tables`, and results that
are equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from itertools import accumulate, chain, compress, islice, pairwise, zip_longest
from operator import mul
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.bindings import Bound, Directions, fact_names, launch_tables
from foldbatch.engines.launch import LaunchTable
from foldbatch.engines.llvm import table_loops as loops
from foldbatch.loops.compiling import compiled_function, compiled_late
from foldbatch.scheduler.arithmetic import Arithmetic
from foldbatch.scheduler.layout import Layout, by_consumer, priority
from foldbatch.scheduler.levels import levels_in
from foldbatch.scheduler.merge import Merged
from foldbatch.scheduler.policies import Policy, components, is_recursion
from foldbatch.scheduler.schedule import ALL, CellTable, Flat, Index, RowSpan, Schedule, Step, late_schedule
from foldbatch.scheduler.sharing import Share, leaves, none_shared
from foldbatch.scheduler.tables import placed, planned
from foldbatch.scheduler.trace import CellSignature, Ints
from foldbatch.system.processes import no_garbage

SIGNATURES = {
    "group": "i4[] i8 i8[] i8[] i8[]",
    "levels": "i8[] i8[] i4[] i8[]",
    "write_tables": "i8[] i8[] i4[] i8[]",
    "write_launches": "i8[] i8[] i8[] i8[]",
}
NAMES: tuple[tuple[str, ...], ...] = (*((stage,) for stage in ALL), ALL)  # of the stages of a step

Functions = dict[str, Callable[..., int]]
Flags = tuple[tuple[bool, ...], ...]  # per cell and feed, see `foldbatch.scheduler.trace.Form.integers`


@cache
def compiled() -> Functions:
    """Return the compiled loops by name; they are compiled once a machine, and loaded once a process."""
    make = {"levels": compiled_late}  # rarely called: most examples have levels from their trace
    return {
        name: make.get(name, compiled_function)(getattr(loops, name), signature, loops)
        for name, signature in SIGNATURES.items()
    }


class ModelConstants(NamedTuple):
    """The integers of a model that plans of its batches read, and the sizes of a batch's memory."""

    table: Index  # the model's header and records, for `table_loops.write_tables`
    base: int  # integers of memory that every batch takes
    per_value: int  # integers more for each value
    per_call: list[int]  # by cell, integers more for each call
    per_element: int  # integers more for each element of a sequence


@lru_cache(256)
def _model_constants(
    cells: tuple[CellSignature, ...],
    arenas: int,
    layout: Layout,
    of_phases: tuple[tuple[int, ...], ...],
    integers: Flags,
) -> ModelConstants:
    """Return the constants of a model, given the cells of each phase, and which feeds are packed integers."""
    shapes, spans, columns = list[int](), list[int](), list[int]()
    widths = [width for cell in cells for width in cell.sequences]
    outputs = [arena for cell in cells for arena in cell.outputs]
    sequence, output = 0, 0
    for cell, flags in zip(cells, integers, strict=True):
        record = cell.arguments, len(cell.sequences), sequence, len(cell.outputs), output, len(cell.operands)
        shapes += (*record, len(spans) // loops.Operand.size, cell.recursive, sum(flags))
        shapes += [0] * (loops.Cell.size - loops.Cell.groups)
        for operand in cell.operands:
            ragged = -1 if operand.sequence is None else sequence + operand.sequence
            source = operand.arena, len(columns), len(operand.places), ragged, operand.member
            spans += [
                *source,
                operand.differentiable,
                -1,
                0,
                -1,
                *[0] * (loops.Operand.size - loops.Operand.repeats),
            ]
            columns += operand.places.tolist()
        sequence += len(cell.sequences)
        output += len(cell.outputs)
    lists = [number for width in widths for number in (width, *[0] * (loops.Sequence.size - 1))]
    phases, members = list[int](), list[int]()
    for group in of_phases:
        phases += (len(members), len(members) + len(group), is_recursion(cells, group))
        members += group
    facts = sum(1 for _ in fact_names(cells, arenas))
    kinds = len(cells)
    ends = (arenas + 1, 0, 0)
    bounds = 2 * kinds
    sizes = [(len(table), 0, 0) for table in (shapes, spans, lists)]
    sizes += [(0, 1, 0), (0, 0, 1), (bounds, 0, 1)]
    sizes += [(16 * kinds, 0, 4), (facts, 0, 0), (0, 1, 1), ends, ends, (kinds, 0, 2)]
    sizes += [
        (bounds + loops.DIGITS, 1, 2),
        (kinds + len(widths) + 1, 0, 0),
    ]  # for the index, `per_call` has more
    tables = shapes, spans, lists, columns, outputs, list(priority(cells)), phases, members, [*chain(*sizes)]
    _, _, _, *starts = accumulate(map(len, tables[:-1]), initial=loops.Model.size)
    counts = kinds, len(spans) // loops.Operand.size, len(widths), arenas, facts, layout is by_consumer
    numbers = np.array([*counts, len(of_phases), *starts, *chain.from_iterable(tables)], np.int64)
    base, value, call = map(sum, zip(*sizes, strict=True))
    rooms = [sum([len(o.columns) for o in c.operands], 1 + len(c.outputs) + len(c.sequences)) for c in cells]
    ragged = sum(o.sequence is not None for c in cells for o in c.operands)
    return ModelConstants(numbers, loops.Tables.size + base, value, [call + room for room in rooms], ragged)


@lru_cache(256)
def planner_inputs(
    cells: tuple[CellSignature, ...], arenas: int, layout: Layout, share: Share, integers: Flags
) -> tuple[ModelConstants, Index | None]:
    """Return the model constants and the batch header for the one-call planner.

    The header is None if batches of this model cannot be planned in one call: where cells call each other, or
    calls that are shared have more than one feed.
    """
    fixed = _model_constants(cells, arenas, layout, components(cells), integers)
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


def build_schedule(
    functions: Functions,
    arithmetic: Arithmetic,
    merged: Merged,
    cells: tuple[CellSignature, ...],
    policy: Policy,
    layout: Layout,
    arenas: int,
    share: Share,
) -> Schedule:
    """Return the schedule of a merged trace, as `foldbatch.scheduler.tables.build` does.

    One compiled call makes it where `planner_inputs` has a header; else groups and shares are planned first.
    """
    trace = merged.trace
    integers = merged.trace.form.integers
    batch = None
    if policy.alone is not None:
        fixed, batch = planner_inputs(cells, arenas, layout, share, integers)
    if batch is not None:
        if trace.form.packed and trace.packed is not None and not fixed.per_element:
            feeds: Sequence[Sequence[Any]] = integers  # all that is read of them is packed
            rows = trace.packed.copy()
            memory = _allocate(fixed, trace.values, trace.counts, 0)
        else:
            feeds = trace.feeds
            data = [
                x for columns, flags in zip(feeds, integers, strict=True) for x in compress(columns, flags)
            ]
            sections = [np.empty(trace.size, np.int32), *data]
            rows, memory = _pack_sections(fixed, trace.values, trace.calls, trace.elements, sections)
        if functions["write_tables"](fixed.table, batch, rows, memory):
            return _schedule(merged, cells, arenas, memory, rows, feeds, integers, policy.alone or "")
    with no_garbage():  # the turns of a long chain are very many
        plan, shared = planned(trace, cells, policy, share, arithmetic)
    if sum(plan.sizes) > trace.size:  # more groups than calls: some are empty
        return placed(merged, cells, plan, shared, layout, arenas)
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
    fixed = _model_constants(cells, arenas, layout, tuple([members for members, _ in plan.phases]), integers)
    rows, memory = _pack_sections(fixed, trace.values, trace.calls, trace.elements, plan.groups)
    functions["write_tables"](fixed.table, np.concatenate([head, *shares]), rows, memory)
    return _schedule(merged, cells, arenas, memory, rows, trace.feeds, integers, plan.reason)


def levels(
    functions: Functions,
    cells: tuple[CellSignature, ...],
    scopes: tuple[tuple[int, ...], ...],
    calls: Sequence[Ints],
    elements: Sequence[Sequence[Ints]],
    values: int,
) -> list[Ints]:
    """Return the level of each call of each cell, as `levels_in` does."""
    counts = [*map(len, calls)]
    (fixed, batch) = _level_inputs(cells, scopes)
    rows, memory = _pack_sections(fixed, values, calls, elements, [np.zeros(sum(counts), np.int32)])
    if not functions["levels"](fixed.table, batch, rows, memory):
        return levels_in(cells, scopes, calls, elements, values)
    ends = accumulate(counts, initial=len(rows) - sum(counts))
    return [rows[first:last] for first, last in pairwise(ends)]


@lru_cache(256)
def _level_inputs(
    cells: tuple[CellSignature, ...], scopes: tuple[tuple[int, ...], ...]
) -> tuple[ModelConstants, Index]:
    """Return the model constants and an empty batch header for `table_loops.levels`, which finds levels only.

    Args:
        cells: the cells of the model.
        scopes: per scope of the policy, its cells.
    """
    fixed = _model_constants(cells, 0, by_consumer, scopes, ((),) * len(cells))
    return fixed, np.zeros(loops.Batch.size + loops.BATCH_FIELDS * len(cells), np.int64)


def _pack_sections(
    fixed: ModelConstants,
    values: int,
    calls: Sequence[Ints],
    elements: Sequence[Sequence[Ints]],
    sections: Sequence[Ints],
) -> tuple[Ints, Index]:
    """Return a packed trace of calls, elements and further sections, and memory for its tables.

    The sections stand where a packed trace has levels and feeds.
    """
    counts = [*map(len, calls)]
    parts = [part for cell_elements in elements for part in cell_elements]
    head = np.array([values, *counts, *map(len, parts)], np.int32)
    rows = np.concatenate([head, *calls, *parts, *sections], axis=None)
    return rows, _allocate(fixed, values, counts, sum([part.size for part in parts]))


def _allocate(fixed: ModelConstants, values: int, counts: Sequence[int], elements: int) -> Index:
    size = fixed.base + values * fixed.per_value + sum(map(mul, counts, fixed.per_call))
    return np.empty(size + fixed.per_element * elements, np.int64)


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
    trace = merged.trace
    header = memory[: loops.Tables.size].tolist()
    orders: list[Index] = []
    feeds: list[tuple[NDArray[Any], ...]] = []
    first, end = header[loops.Tables.ranks], header[loops.Tables.feeds_at]
    distinct = memory[
        header[loops.Tables.cells_at] + loops.Cell.distinct : header[
            loops.Tables.operands_at
        ] : loops.Cell.size
    ].tolist()
    for distinct_count, count, columns, flags in zip(
        distinct, trace.counts, data_columns, integers, strict=True
    ):
        orders.append(memory[first : first + distinct_count])
        first += count
        arranged: tuple[NDArray[Any], ...] = ()
        for data, integer in zip_longest(columns, flags) if columns else ():
            arranged += (rows[end : end + distinct_count] if integer else data.take(orders[-1], axis=0),)
            end += count if integer else 0
        feeds.append(arranged)
    flat = Flat(memory, header, tuple(orders), tuple(feeds))
    return late_schedule(flat, partial(_schedule_part, cells, merged.counts, arenas, flat), reason)


def _schedule_part(
    cells: tuple[CellSignature, ...], counts: Sequence[Index] | Index, arenas: int, flat: Flat, name: str
) -> Any:
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
            return tuple([Step(k, NAMES[stage], start, stop) for k, stage, start, stop in steps])
        case _:
            return _cell_tables(cells, counts, flat)


def _cell_tables(cells: tuple[CellSignature, ...], counts: Any, flat: Flat) -> tuple[CellTable, ...]:
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


def launch_inputs(bound: Bound) -> tuple[Index, int, int]:
    """Return the inputs of `table_loops.write_launches` that are the same for all batches of a model.

    Returns:
        The header `Routines` with its tables; the integers of output memory that any batch takes, besides its
        facts and levels; and the integers of a launch.
    """
    parameters = {parameter: number for number, parameter in enumerate(bound.summed)}
    gradients = [
        parameters[parameter] for kernel_gradients in bound.gradients for parameter in kernel_gradients
    ]
    stages = np.concatenate([bound.stages["forward"], bound.stages["backward"]], axis=None)
    yielding = np.cumsum([0, *map(len, bound.gradients)])
    width = bound.places.shape[1]
    yielded = np.array(gradients, np.int64)
    tables = [stages, yielding, yielded, bound.uses.ravel(), bound.places.ravel(), bound.fixed]
    starts = accumulate(map(len, tables[:-1]), initial=loops.Routines.size)
    numbers, buffers = len(bound.fixed), len(bound.types)
    counts = len(stages) // (2 * loops.STAGES), len(parameters), bound.uses.shape[1], buffers, numbers, width
    fixed = np.concatenate([np.array([*counts, bound.training, *starts], np.int64), *tables])
    return fixed, loops.Launches.size + numbers + 2 * len(parameters) + buffers, width


def launch_writer(functions: Functions, bound: Bound) -> Callable[[Schedule], Directions]:
    """Return a function from schedules to launches of these routines, as `bindings.launch_tables`."""
    fixed, base_size, width = launch_inputs(bound)

    def launched(schedule: Schedule) -> Directions:
        """Return the launches of a batch; in plain Python if its schedule is not flat."""
        flat = schedule.flat
        if flat is None:
            return launch_tables(bound, schedule)
        header = flat.header
        directions = 1 + bound.training
        levels = header[loops.Tables.steps]
        facts = header[loops.Tables.zeros] - header[loops.Tables.facts_at]
        memory = np.empty(base_size + facts + 2 * levels * directions, np.int64)
        launches = np.empty(levels * directions * loops.STAGES * width, np.int64)  # an upper bound
        functions["write_launches"](fixed, flat.memory, memory, launches)
        ahead, back, facts, yields, heights, bounds, mirror = memory[: loops.Launches.size].tolist()
        rows = launches[: width * (ahead + back)].copy().reshape(-1, width)
        index = flat.memory[
            header[loops.Tables.index] : header[loops.Tables.index] + header[loops.Tables.index_end]
        ]
        needed = memory[heights:bounds]
        backward = None
        forward = LaunchTable(rows[:ahead], memory[bounds:mirror].reshape(-1, 2), index, needed)
        if bound.training:
            backward = LaunchTable(rows[ahead:], memory[mirror:].reshape(-1, 2), index, needed)
        levels_of = zip(bound.summed, memory[yields:heights].tolist(), strict=True) if bound.summed else ()
        return Directions(forward, backward, dict(levels_of), memory[facts:yields])

    return launched
