"""A batch's control tables and launches by compiled loops: `table_loops`, in the form of what these mirror.

Results are the same to the last bit as those of `scheduler.tables.placed` and `bindings.launch_tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import accumulate, chain, islice, pairwise

import numpy as np

from foldbatch.engines.bindings import Bound, Directions, launch_tables
from foldbatch.engines.facts import fact_names
from foldbatch.engines.launch import LaunchTable
from foldbatch.engines.llvm import table_loops
from foldbatch.engines.llvm.compiling import compiled_function
from foldbatch.engines.llvm.table_loops import (
    BASES,
    BATCH,
    BOUND,
    CALLS,
    CELL,
    CELLS_AT,
    ENDS,
    FACTS_AT,
    FIXED,
    INDEX,
    INDEX_END,
    LIST,
    LISTS_AT,
    MEMORY,
    RANKS,
    REPEATS,
    ROW_OF,
    RUNNING,
    SPAN,
    SPANS_AT,
    STAGES,
    START,
    STEPS,
    STEPS_AT,
    TOLD,
    TOLD_OF_LAUNCHES,
    ZEROS,
)
from foldbatch.scheduler.layout import Layout, by_consumer, priority
from foldbatch.scheduler.merge import Merged
from foldbatch.scheduler.policies import RunOrder, is_recursion
from foldbatch.scheduler.schedule import ALL, CellTable, Flat, Index, RowSpan, Schedule, Step, late_schedule
from foldbatch.scheduler.sharing import Sharing
from foldbatch.scheduler.trace import CellSignature

SIGNATURES = {"place": "i8[] i8[] i4[] i4[] i8[]", "launch": "i8[] i8[] i8[] i8[] i8[]"}
_NO_CALLS = np.zeros(0, np.int32)
NAMES: tuple[tuple[str, ...], ...] = (*((stage,) for stage in ALL), ALL)  # of the stages of a step

Functions = dict[str, Callable[..., int]]


@cache
def compiled() -> Functions:
    """Return the compiled loops: made once a process, read from the cache on disk where they are there.

    Raises:
        BackendError: when llvmlite is not installed.
    """
    return {
        name: compiled_function(getattr(table_loops, name), signature, table_loops)
        for name, signature in SIGNATURES.items()
    }


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What a model fixes."""

    numbers: Index  # what `table_loops.place` is told of it
    facts: int  # how many there are
    room: list[int]  # per cell, how much of the index a call may take
    more: int  # and what is taken besides
    ragged: int  # how many operands read sequences


@lru_cache(256)
def _fixed(cells: tuple[CellSignature, ...], arenas: int) -> _Fixed:
    shapes, spans, columns = list[int](), list[int](), list[int]()
    widths = [width for cell in cells for width in cell.sequences]
    outputs = [arena for cell in cells for arena in cell.outputs]
    sequence, output = 0, 0
    for cell in cells:
        own = cell.arguments, len(cell.sequences), sequence, len(cell.outputs), output, len(cell.operands)
        shapes += [*own, len(spans) // SPAN, *[0] * (CELL - CALLS)]
        for operand in cell.operands:
            ragged = -1 if operand.sequence is None else sequence + operand.sequence
            reads = operand.arena, len(columns), len(operand.places), ragged, operand.member
            spans += [*reads, operand.differentiable, -1, 0, -1, *[0] * (SPAN - REPEATS)]
            columns += operand.places.tolist()
        sequence += len(cell.sequences)
        output += len(cell.outputs)
    lists = [number for width in widths for number in (width, *[0] * (LIST - 1))]
    facts = sum(1 for _ in fact_names(cells, arenas))
    tables = shapes, spans, lists, columns, outputs, list(priority(cells))
    *_, columns_at, outputs_at, priority_at = accumulate(map(len, tables[:-1]), initial=FIXED)
    counts = len(cells), len(spans) // SPAN, len(widths), arenas, facts, columns_at, outputs_at, priority_at
    return _Fixed(
        np.array([*counts, *chain.from_iterable(tables)], np.int64),
        facts,
        [1 + len(c.outputs) + len(c.sequences) + sum(len(o.columns) for o in c.operands) for c in cells],
        len(cells) + len(widths) + 1,
        sum(o.sequence is not None for c in cells for o in c.operands),
    )


@lru_cache(256)
def _phases(
    cells: tuple[CellSignature, ...], of_phases: tuple[tuple[int, ...], ...]
) -> tuple[list[int], list[int]]:
    """Return phases and their members, given the cells of each."""
    phases, members = list[int](), list[int]()
    for own in of_phases:
        phases += (len(members), len(members) + len(own), is_recursion(cells, own))
        members += own
    return phases, members


def placed(
    functions: Functions,
    merged: Merged,
    cells: tuple[CellSignature, ...],
    plan: RunOrder,
    shared: Sequence[Sharing | None],
    layout: Layout,
    arenas: int,
) -> Schedule:
    """Return the schedule of a merged trace; see `foldbatch.scheduler.tables.placed`."""
    trace, fixed = merged.trace, _fixed(cells, arenas)
    elements = [part for parts in trace.elements for part in parts]
    given, shares = list[int](), list[Index]()
    distinct = [*trace.counts]
    room, end, bounds = fixed.more + fixed.ragged * sum([part.size for part in elements]), 0, 0
    for k, (count, size, sharing) in enumerate(zip(trace.counts, plan.sizes, shared, strict=True)):
        room += count * fixed.room[k]
        bounds += 1 + (size or 1)
        if sharing is None:
            given += (count, size, -1, 0, 0, 0)
        else:
            distinct[k] = len(sharing.copies) - 1
            given += (count, size, end, distinct[k], len(sharing.order), len(sharing.dropped))
            shares += (sharing.order, sharing.copies, sharing.dropped, sharing.instead)
            end += distinct[k] + 1 + len(sharing.order) + 2 * len(sharing.dropped)
    phases, members = _phases(cells, tuple([own for own, _ in plan.phases]))
    turns = [number for own, turns in plan.phases if len(own) > 1 for turn in turns for number in turn]
    ends = accumulate(map(len, (given, phases, members, turns)), initial=BATCH)
    _, _, members_at, turns_at, shares_at = ends
    calls, values = trace.size, trace.values
    sizes = values, calls, bounds, room, layout is by_consumer, len(plan.phases)
    head = *sizes, members_at, turns_at, shares_at
    batch = np.array([*head, *given, *phases, *members, *turns], np.int64)
    # what `table_loops.sized` tells, in sum
    size = MEMORY + len(fixed.numbers) + 4 * (values + calls + bounds) + 8 * len(cells) + room + fixed.facts
    memory = np.empty(size + 2 * (bounds + arenas + 2), np.int64)
    functions["place"](
        fixed.numbers,
        np.concatenate([batch, *shares]) if shares else batch,
        np.concatenate([_NO_CALLS, *[part.ravel() for part in (*trace.calls, *elements)]]),
        np.concatenate([*plan.groups, _NO_CALLS]),
        memory,
    )
    told = memory[:MEMORY].tolist()
    orders, first = [], told[RANKS]
    for own, count in zip(distinct, trace.counts, strict=True):
        orders.append(memory[first : first + own])
        first += count
    facts, steps = memory[told[FACTS_AT] : told[ZEROS]], told[STEPS_AT]
    flat = Flat(
        facts,
        memory[told[INDEX] : told[INDEX] + told[INDEX_END]],
        memory[steps : steps + 4 * told[STEPS]],
        tuple(orders),
    )
    unpack = partial(_unpacked, cells, merged.counts, memory, told, flat)
    rows = tuple(facts[len(facts) - arenas :].tolist())
    zeros = pairwise([0, *memory[told[ENDS] : told[BASES] - 1].tolist()])
    zero_rows = tuple([memory[told[ZEROS] + first : told[ZEROS] + last] for first, last in zeros])
    row_of = memory[told[ROW_OF] : told[ROW_OF] + values]
    return late_schedule(flat, unpack, rows, zero_rows, row_of, plan.reason)


def _unpacked(
    cells: tuple[CellSignature, ...], counts: Sequence[Index], memory: Index, told: Sequence[int], flat: Flat
) -> tuple[tuple[CellTable, ...], tuple[Step, ...]]:
    """Return the tables of cells, and the steps."""
    facts, index = iter(flat.facts.tolist()), flat.index
    spans = iter(memory[told[SPANS_AT] : told[LISTS_AT]].reshape(-1, SPAN).tolist())
    shapes = memory[told[CELLS_AT] : told[SPANS_AT]].reshape(-1, CELL).tolist()
    next(facts)
    tables = []
    for k, cell in enumerate(cells):
        ranks, _, copies = (next(facts) for _ in range(3))
        running = shapes[k][RUNNING]
        found = []
        for operand in cell.operands:
            start, size, place, repeats, first = next(spans)[START:TOLD]
            rows = None if place < 0 else index[place : place + size]
            span = (
                operand.arena,
                len(operand.columns) or 1,
                operand.sequence,
                size,
                start if rows is None else None,
            )
            found.append(RowSpan(*span, rows, bool(repeats), bool(first)))
            for _ in range(5):
                next(facts)
        outputs = [index[place : place + running] for place in islice(facts, len(cell.outputs))]
        segments = []
        for _ in cell.sequences:
            place, _, _ = (next(facts) for _ in range(3))
            segments.append(index[place : place + ranks + 1])
        shared = None if copies < 0 else index[copies : copies + ranks + 1]
        tables.append(
            CellTable(flat.orders[k], tuple(found), tuple(outputs), tuple(segments), counts[k], shared)
        )
    steps = flat.steps.reshape(-1, 4).tolist()
    return tuple(tables), tuple([Step(k, NAMES[stage], start, stop) for k, stage, start, stop in steps])


def launching(functions: Functions, bound: Bound) -> Callable[[Schedule], Directions]:
    """Return what `bindings.launch_tables` is for some routines."""
    parameters = {parameter: number for number, parameter in enumerate(bound.summed)}
    gradients = [parameters[parameter] for own in bound.gradients for parameter in own]
    stages = np.concatenate([bound.stages["forward"], bound.stages["backward"]], axis=None)
    yielding, width = np.cumsum([0, *map(len, bound.gradients)]), bound.places.shape[1]
    yielded = np.array(gradients, np.int64)
    tables = [stages, yielding, yielded, bound.uses.ravel(), bound.places.ravel(), bound.fixed]
    starts = accumulate(map(len, tables[:-1]), initial=BOUND)
    numbers, buffers = len(bound.fixed), len(bound.types)
    counts = len(stages) // (2 * STAGES), len(parameters), bound.uses.shape[1], buffers, numbers, width
    fixed = np.concatenate([np.array([*counts, bound.training, *starts], np.int64), *tables])
    kept = TOLD_OF_LAUNCHES + numbers + 2 * len(parameters) + buffers

    def launched(schedule: Schedule) -> Directions:
        flat = schedule.flat
        if flat is None:
            return launch_tables(bound, schedule)
        levels, directions = len(flat.steps) // 4, 1 + bound.training
        memory = np.empty(kept + len(flat.facts) + 2 * levels * directions, np.int64)
        launches = np.empty(levels * directions * STAGES * width, np.int64)  # fewer than that, mostly
        functions["launch"](fixed, flat.steps, flat.facts, memory, launches)
        ahead, back, facts, yields, heights, bounds, mirror = memory[:TOLD_OF_LAUNCHES].tolist()
        rows = launches[: width * (ahead + back)].copy().reshape(-1, width)
        index, needed = flat.index, memory[heights:bounds]
        forward = LaunchTable(rows[:ahead], memory[bounds:mirror].reshape(-1, 2), index, needed)
        backward = LaunchTable(rows[ahead:], memory[mirror:].reshape(-1, 2), index, needed)
        told = dict(zip(parameters, memory[yields:heights].tolist(), strict=True))
        return Directions(forward, backward if bound.training else None, told, memory[facts:yields])

    return launched
