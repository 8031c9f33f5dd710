"""A batch's packed table: all whole numbers that kernels read of it, in one run that is copied once.

The head (see `texts.kernel_text`) tells where the index arrays begin, where the addresses of buffers lie, and
the address of the status. Then follow these addresses, and room for two more for each sum of rows (its values
and their places, which only a control table uses); the index arrays; for each direction launches, bounds of
levels and plans; plans of sums of rows; rows that are set to zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foldbatch.engines.bindings import Bound
from foldbatch.engines.cuda.kernels import Kernel
from foldbatch.engines.cuda.plans import joined, plan_of
from foldbatch.engines.cuda.steps import Step, steps_of
from foldbatch.engines.cuda.texts.kernel_text import ADDRESSES_AT, HEADER, INDEX_AT, STATUS_AT
from foldbatch.engines.launch import FIELDS, FIRST, HEAD, INDEX, WIDTH, Ints, LaunchTable
from foldbatch.engines.launches import Directions
from foldbatch.scheduler.schedule import Schedule

SUMMED = 2  # addresses of a sum of rows


@dataclass(frozen=True, slots=True)
class Direction:
    """A launch table, and the steps that it is.

    Attributes:
        table: the launch table.
        steps: kernels and products, which refer to the packed table.
    """

    table: LaunchTable
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Packed:
    """A batch's packed table, but for the addresses.

    Attributes:
        numbers: ``[*] int64``.
        forward: where that direction lies.
        backward: the other one, while training.
        sums: by cell and number of its sums of rows, where the plan lies, how many targets, and these.
        zeros: by arena, where the rows of cotangents that are set to zero lie, and how many.
    """

    numbers: Ints
    forward: Direction
    backward: Direction | None
    sums: Mapping[tuple[int, int], tuple[int, Ints]]
    zeros: Mapping[int, tuple[int, int]]

    def filled(self, target: Ints, addresses: Ints, status: int) -> None:
        """Write the table, with addresses: ``target: [len(numbers)]``, ``addresses: [buffers]``."""
        target[:] = self.numbers
        target[STATUS_AT] = status
        target[HEADER : HEADER + len(addresses)] = addresses


def pack(
    bound: Bound,
    kernels: Sequence[Kernel],
    tables: Directions,
    schedule: Schedule,
    ids: Mapping[tuple[int, int], Ints],
) -> Packed:
    """Return the packed table of a batch.

    Args:
        bound: the routines.
        kernels: of the routines.
        tables: the launch tables.
        schedule: the control tables.
        ids: by cell and number of its sums, the rows of the table that are added to.
    """
    end = HEADER + len(bound.types) + SUMMED * len(ids)
    head = np.zeros(end, np.int64)
    forward = tables.forward
    index_at = end
    runs: list[Ints] = [head, forward.index]
    end += len(forward.index)
    head[INDEX_AT], head[ADDRESSES_AT] = index_at, HEADER
    directions: list[Direction | None] = []
    for table in (forward, tables.backward):
        if table is None:
            directions.append(None)
            continue
        launches, bounds = end, end + table.launches.size
        runs += [table.launches.reshape(-1), table.bounds.reshape(-1)]
        end = bounds + table.bounds.size
        places, plans = _plans(bound, kernels, table)
        numbers, starts = joined(plans, end)
        runs.append(numbers)
        end += len(numbers)
        found = {
            place: (start, int(plan[0])) for place, start, plan in zip(places, starts, plans, strict=True)
        }
        directions.append(Direction(table, tuple(steps_of(kernels, table, launches, bounds, found))))
    sums = {}
    for key, rows in ids.items():
        plan = plan_of(rows.reshape(-1))
        sums[key] = end, plan[1 : 1 + plan[0]]
        runs.append(plan)
        end += len(plan)
    zeros = {}
    if tables.backward is not None:
        for arena, rows in enumerate(schedule.zero_rows):
            if len(rows) and bound.model.arenas[arena].is_float:
                zeros[arena] = end, len(rows)
                runs.append(np.asarray(rows, np.int64))
                end += len(rows)
    first, second = directions
    assert first is not None
    return Packed(np.concatenate(runs), first, second, sums, zeros)


def _plans(
    bound: Bound, kernels: Sequence[Kernel], table: LaunchTable
) -> tuple[list[tuple[int, int, int]], list[Ints]]:
    """Return plans of what launches add to rows that do not follow each other, and their places."""
    places, plans = [], []
    for number, row in enumerate(table.launches.tolist()):
        kernel = kernels[row[0]]
        routine = kernel.routine
        for task in kernel.tasks:
            if task.planned < 0:
                continue
            start = HEAD + FIELDS * task.planned
            if row[start + FIRST] >= 0:
                continue
            at, width = row[start + INDEX], row[start + WIDTH]
            slot = routine.segments.get(task.axis)
            for level in range(row[1], row[2]):
                low, high = table.bounds[level].tolist()
                if slot is not None:  # rows are elements of sequences
                    segments = row[HEAD + FIELDS * slot + INDEX]
                    low, high = int(table.index[segments + low]), int(table.index[segments + high])
                places.append((number, level, task.planned))
                plans.append(plan_of(table.index[at + low * width : at + high * width]))
    return places, plans
