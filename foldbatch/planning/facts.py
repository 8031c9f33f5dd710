"""The facts of a schedule: what differs from batch to batch in the launches of a model.

`fact_names` lists what facts are called, for a model; `facts_of` their values, in the same order, for a
schedule. A name is a word and the numbers of the cell and of its operand, output or sequence:

=================  =============================================================================
``one``            1
``arena, a``       rows of an arena
``all, k``         calls of a cell; ``all, k, s`` elements of one of their sequences
``widest, k``      calls of the widest step; ``widest, k, s`` the most elements of one
``first, k, i``    the first row that an operand reads, or -1 where an array tells them
``rows, k, i``     where that array lies in the packed index, or -1
``gathered, k, i`` 1 where there is one
``stores, k, i``   1 where the operand's cotangents are stored; ``added, k, i`` the other way round
``output, k, j``   where the array of an output's rows lies
``segments, k, s`` where the segments of a sequence lie
``copies, k``      where it is told which calls share a rank, or -1
=================  =============================================================================
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain

import numpy as np

from foldbatch.planning.table_loops import StepRecord, Tables
from foldbatch.scheduler.schedule import ALL, Flat, Index, Schedule
from foldbatch.scheduler.trace import CellSignature

Fact = tuple[Hashable, ...]
STAGE_NAMES: tuple[tuple[str, ...], ...] = (*((stage,) for stage in ALL), ALL)  # by number


def fact_names(cells: Sequence[CellSignature], arenas: int) -> Iterator[Fact]:
    """Yield the names of the facts of the schedules of a model with so many arenas, in order."""
    yield ("one",)
    for k, cell in enumerate(cells):
        yield from (("all", k), ("widest", k), ("copies", k))
        for i in range(len(cell.operands)):
            yield from ((name, k, i) for name in ("first", "rows", "gathered", "stores", "added"))
        yield from (("output", k, j) for j in range(len(cell.outputs)))
        for s in range(len(cell.sequences)):
            yield from ((name, k, s) for name in ("segments", "all", "widest"))
    yield from (("arena", arena) for arena in range(arenas))


def facts_of(schedule: Schedule, widest: Sequence[tuple[int, ...]]) -> tuple[list[int], Index]:
    """Return the facts of a schedule, and all its index arrays packed as one: ``[*] int64``."""
    facts = [1]
    arrays: list[Index] = []
    end = 0
    for k, table in enumerate(schedule.cells):
        sizes = widest[k]
        facts += (len(table.order), sizes[0])
        if table.copies is None:
            facts.append(-1)
        else:
            facts.append(end)
            arrays.append(table.copies)
            end += len(table.copies)
        for span in table.operands:
            stores = int(span.first)
            if span.rows is None:
                facts += (0 if span.start is None else span.start, -1, 0, stores, 1 - stores)
            else:
                facts += (-1, end, 1, stores, 1 - stores)
                arrays.append(span.rows)
                end += len(span.rows)
        for rows in table.outputs:
            facts.append(end)
            arrays.append(rows)
            end += len(rows)
        for segments, elements in zip(table.segments, sizes[1:], strict=True):
            facts += (end, int(segments[-1]), elements)
            arrays.append(segments)
            end += len(segments)
    facts += schedule.arena_rows
    index = np.concatenate(arrays) if arrays else np.zeros(0, np.int64)
    return facts, index


def widest_steps(schedule: Schedule) -> Iterator[tuple[int, ...]]:
    """Yield, for each cell, the most calls that a step has, and the most elements of each sequence."""
    spans: list[list[tuple[int, int]]] = [[(0, 0)] for _ in schedule.cells]
    for cell, stages, first, last in schedule.steps:
        if "step" in stages:
            spans[cell].append((first, last))
    for cell_spans, table in zip(spans, schedule.cells, strict=True):
        starts, stops = np.array(cell_spans, np.int64).T
        sizes = [part[stops] - part[starts] for part in table.segments]
        yield tuple([int(size.max()) for size in (stops - starts, *sizes)])


def flat_of(schedule: Schedule) -> Flat:
    """Return a schedule in one array, as far as launches are made of it.

    One that `foldbatch.planning.tables.build` has not made is copied there: those of capacity classes, of
    passes that begin with cotangents, and from files.
    """
    if schedule.flat is not None:
        return schedule.flat
    facts, index = facts_of(schedule, list(widest_steps(schedule)))
    steps = [(k, STAGE_NAMES.index(stages), start, stop) for k, stages, start, stop in schedule.steps]
    numbers = np.array([*chain.from_iterable(steps), *facts], np.int64)
    header = np.zeros(Tables.size, np.int64)
    tables = Tables(header)
    tables.steps, tables.index_end, tables.steps_at = len(steps), len(index), Tables.size
    tables.facts_at = Tables.size + StepRecord.size * len(steps)
    tables.zeros = tables.index = tables.facts_at + len(facts)
    return Flat(np.concatenate([header, numbers, index]), header.tolist(), schedule.orders, ())
