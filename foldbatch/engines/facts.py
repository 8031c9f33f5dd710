"""Facts of a schedule: the numbers of a launch table that differ from batch to batch, in a fixed order.

`fact_names` lists what they are called, for a model; `facts_of` their values, in the same order, for a
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

import numpy as np

from foldbatch.engines.launch import Ints
from foldbatch.scheduler.schedule import Schedule
from foldbatch.scheduler.trace import CellSignature

Fact = tuple[Hashable, ...]


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


def facts_of(schedule: Schedule, widest: Sequence[tuple[int, ...]]) -> tuple[list[int], Ints]:
    """Return the facts of a schedule, and all its index arrays packed as one: ``[*] int64``."""
    facts = [1]
    arrays: list[Ints] = []
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
