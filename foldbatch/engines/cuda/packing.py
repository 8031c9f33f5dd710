"""A batch's packed table: all whole numbers that kernels read of it, in one run that is copied once.

The head (see `texts.kernel_text`) tells where numbers of 32 bits begin, where the addresses of buffers lie,
and the address of the status. Then follow these addresses, and two more for each sum of rows (its values and
their places); for each direction launches and levels; the levels of whole cells. All these have 64 bits. Of
32 bits, for they number rows, are the index arrays; what tells which ranks are calls; plans; and rows that
are set to zero. Of a batch with rooms, every part has its place whatever the batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.bindings import Bound, Directions
from foldbatch.engines.cuda.fixed_kernels import plan_of
from foldbatch.engines.cuda.kernel_text import (
    ADDRESSES_AT,
    CALLS,
    ELEMENTS,
    HEADER,
    INDEX_AT,
    LEVEL,
    LIVE,
    ROOM,
    STATUS_AT,
)
from foldbatch.engines.cuda.kernels import Kernel
from foldbatch.engines.launch import FIELDS, FIRST, HEAD, INDEX, WIDTH, Ints, LaunchTable
from foldbatch.scheduler.rooms import Placed, is_level, wholes_of
from foldbatch.scheduler.schedule import Schedule

SUMMED = 2  # addresses of a sum of rows


class Spaced(NamedTuple):
    """Where a batch has its places with room: the class's full schedule and tables, and the batch in them."""

    full: Schedule
    tables: Directions
    placed: Placed


@dataclass(frozen=True, slots=True)
class Direction:
    """Where one direction lies in a packed table."""

    table: LaunchTable  # the launch table; with rooms, that of a batch that takes all of them
    launches: int  # where its rows begin
    levels: tuple[int, ...]  # where the record of each level lies
    # by launch, level and binding, where a plan lies, and how many targets it has at most
    plans: Mapping[tuple[int, int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A batch's packed table, but for the addresses."""

    numbers: Ints  # ``[*] int64``; its last ones are two numbers of 32 bits each, see `ints`
    forward: Direction  # where that direction lies
    backward: Direction | None  # the other one, while training
    # by cell and number of its sums of rows, where the plan lies, and its targets
    sums: Mapping[tuple[int, int], tuple[int, Ints]]
    # by arena, where the rows of cotangents that are set to zero lie, after their count; and how many there
    # are at most
    zeros: Mapping[int, tuple[int, int]]
    wholes: Mapping[int, int]  # by cell with losses, where the record of a level of all its calls lies

    @property
    def ints(self) -> NDArray[np.int32]:
        """The numbers of 32 bits: places of index arrays, plans and lists are places here."""
        return self.numbers.view(np.int32)[int(self.numbers[INDEX_AT]) :]

    def filled(self, target: Ints, addresses: Ints, sums: Sequence[int], status: int) -> None:
        """Write the table, with addresses of buffers and of sums: ``target: [len(numbers)]``."""
        target[:] = self.numbers
        target[STATUS_AT] = status
        end = HEADER + len(addresses)
        target[HEADER:end] = addresses
        target[end : end + len(sums)] = sums


@dataclass(slots=True)
class _IntegerRuns:
    """Runs of numbers of a dtype, one after the other."""

    dtype: str
    end: int = 0
    parts: list[NDArray[Any]] = field(default_factory=list)

    def add(self, numbers: NDArray[Any], room: int = 0) -> int:
        """Append numbers, and zeros up to a length; return their place."""
        start = self.end
        self.parts.append(numbers.astype(self.dtype, copy=False))
        if len(numbers) < room:
            self.parts.append(np.zeros(room - len(numbers), self.dtype))
        self.end += max(len(numbers), room)
        return start


def pack(
    bound: Bound,
    kernels: Sequence[Kernel],
    tables: Directions,
    schedule: Schedule,
    ids: Mapping[tuple[int, int], Ints],
    spaced: Spaced | None = None,
) -> PackedBatch:
    """Return the packed table of a batch.

    Args:
        bound: the routines.
        kernels: of the routines.
        tables: the launch tables; with rooms, the class's with the bounds and the index of the batch.
        schedule: the control tables; with rooms, those of the placed batch.
        ids: by cell and number of its sums, the rows of the table that are added to.
        spaced: the rooms.
    """
    forward = tables.forward
    wide, runs = _IntegerRuns("int64"), _IntegerRuns("int32")
    head = np.zeros(HEADER + len(bound.types) + SUMMED * len(ids), np.int64)
    wide.add(head)
    runs.add(forward.index, 1)  # so that no other place is 0, which stands for none
    maps = {} if spaced is None else _maps(bound, spaced, runs)
    records = _levels(schedule, spaced, maps)
    directions: list[Direction | None] = []
    for table, own in ((forward, records), (tables.backward, records[::-1])):
        if table is None:
            directions.append(None)
            continue
        launches = wide.add(table.launches.reshape(-1))
        begin, each = wide.add(own.reshape(-1)), own.shape[1]
        full = None
        if spaced is not None:
            full = spaced.tables.forward if table is forward else spaced.tables.backward
        plans = _plans(bound, kernels, table, full, spaced, runs)
        levels = tuple(range(begin, begin + each * len(own), each))
        directions.append(Direction(full or table, launches, levels, plans))
    sums = {}
    for key, rows in ids.items():
        flat, room, terms = rows.reshape(-1), 0, None
        if spaced is not None:
            each = math.prod(rows.shape[1:])  # ids of a call
            terms = (spaced.placed.ranks[key[0]][:, None] * each + np.arange(each)).ravel()
            room = 2 + 3 * each * len(spaced.full.cells[key[0]].order)
        plan = plan_of(flat, terms)
        sums[key] = runs.add(plan, room), plan[1 : 1 + plan[0]].astype(np.int64)
    zeros = {}
    for arena, rows in enumerate(schedule.zero_rows if tables.backward is not None else ()):
        room = len(rows) if spaced is None else len(spaced.full.zero_rows[arena])
        if room and bound.model.arenas[arena].is_float:
            listed = np.concatenate([np.array([len(rows)], np.int64), rows])
            zeros[arena] = runs.add(listed, 1 + room), room
    wholes = {}
    for (k, _), _ in bound.brought["loss"]:
        if k not in wholes:
            calls = len(schedule.cells[k].order) if spaced is None else len(spaced.placed.ranks[k])
            room = len(schedule.cells[k].order)
            wholes[k] = wide.add(np.array([0, calls, maps.get(k, [0])[0], room]))
    first, second = directions
    assert first is not None
    head[INDEX_AT], head[ADDRESSES_AT] = 2 * wide.end, HEADER
    runs.add(np.zeros(runs.end % 2))
    numbers = np.concatenate([*wide.parts, np.concatenate(runs.parts).view(np.int64)])
    return PackedBatch(numbers, first, second, sums, zeros, wholes)


def _maps(bound: Bound, spaced: Spaced, runs: _IntegerRuns) -> dict[int, list[int]]:
    """Return, per cell, where it is told which ranks are calls, and which elements there are."""
    summed = {k for (k, _), _ in bound.brought["loss"]}
    maps: dict[int, list[int]] = {}
    for k in sorted(wholes_of(spaced.full) | summed):
        table = spaced.full.cells[k]
        lists = [(spaced.placed.ranks[k], len(table.order))]
        lists += [
            (own, int(segments[-1]))
            for own, segments in zip(spaced.placed.elements[k], table.segments, strict=True)
        ]
        maps[k] = []
        for own, room in lists:
            free = np.ones(room, bool)
            free[own] = False
            maps[k].append(runs.add(np.concatenate([own, np.flatnonzero(free)])))
    return maps


def _levels(schedule: Schedule, spaced: Spaced | None, maps: Mapping[int, Sequence[int]]) -> Ints:
    """Return a record of each step, see `texts.kernel_text`: ``[steps, numbers]``."""
    sequences = max((len(table.segments) for table in schedule.cells), default=0)
    records = np.zeros((len(schedule.steps), LEVEL + ELEMENTS * sequences), np.int64)
    _measured(records, schedule, CALLS, 0)
    _measured(records, schedule if spaced is None else spaced.full, ROOM, 2)
    if spaced is not None:
        for row, (k, stages, _, _) in zip(records, schedule.steps, strict=True):
            if not is_level(stages):
                counts = [spaced.placed.ranks[k], *spaced.placed.elements[k]]
                for at, own, place in zip((CALLS, *_sequences(sequences)), counts, maps[k], strict=False):
                    row[at] = len(own)
                    row[LIVE if at == CALLS else at + 1] = place
    return records


def _sequences(count: int) -> range:
    """Return where in a record the elements of each sequence are counted."""
    return range(LEVEL, LEVEL + ELEMENTS * count, ELEMENTS)


def _measured(records: Ints, schedule: Schedule, calls: int, more: int) -> None:
    """Write where levels begin, how many calls they have, and elements, each at its place in the records."""
    if not schedule.steps:
        return
    cells, _, starts, stops = zip(*schedule.steps, strict=True)
    which, first, last = np.array([cells, starts, stops], np.int64)
    records[:, 0], records[:, calls] = first, last - first
    for k, table in enumerate(schedule.cells):
        if table.segments:
            own = np.flatnonzero(which == k)
            for at, segments in zip(_sequences(len(table.segments)), table.segments, strict=True):
                records[own, at + more] = segments[last[own]] - segments[first[own]]


def _plans(
    bound: Bound,
    kernels: Sequence[Kernel],
    table: LaunchTable,
    full: LaunchTable | None,
    spaced: Spaced | None,
    runs: _IntegerRuns,
) -> dict[tuple[int, int, int], tuple[int, int]]:
    """Append plans of what launches add to rows that do not follow each other; return where they are."""
    found = {}
    wholes = set() if spaced is None else wholes_of(spaced.full)
    for number, row in enumerate(table.launches.tolist()):
        kernel = kernels[row[0]]
        routine = kernel.routine
        for task in kernel.tasks:
            start = HEAD + FIELDS * task.planned
            if task.planned < 0 or row[start + FIRST] >= 0:
                continue
            at, width = row[start + INDEX], row[start + WIDTH]
            slot = routine.segments.get(task.axis)
            live = None
            if spaced is not None and kernel.setting.whole and bound.keys[row[0]].cell in wholes:
                cell = bound.keys[row[0]].cell
                which = 0 if slot is None else 1 + int(routine.slots[slot].binding.key)
                live = [spaced.placed.ranks[cell], *spaced.placed.elements[cell]][which]
            for level in range(row[1], row[2]):
                low, high = _reach(table, row, slot, level)
                count, room = 0, 0
                if full is not None:
                    begin, end = _reach(full, row, slot, level)
                    count = (end - begin) * width
                    room = 2 + 3 * count
                if live is None:
                    plan = plan_of(table.index[at + low * width : at + high * width])
                else:
                    spots = (live[:, None] * width + np.arange(width)).ravel()
                    plan = plan_of(table.index[at + spots], spots)
                found[number, level, task.planned] = runs.add(plan, room), count or int(plan[0])
    return found


def _reach(table: LaunchTable, row: Sequence[int], slot: int | None, level: int) -> tuple[int, int]:
    """Return the first row of a level and the one after the last; with a slot of segments, the elements."""
    low, high = table.bounds[level].tolist()
    if slot is None:
        return low, high
    segments = row[HEAD + FIELDS * slot + INDEX]
    return int(table.index[segments + low]), int(table.index[segments + high])
