"""A batch's packed table: all whole numbers that kernels read of it, in one run that is copied once.

The head (see `texts.kernel_text`) tells where numbers of 32 bits begin, where the addresses of buffers lie,
and the address of the status. Then follow these addresses, and two more for each sum of rows (its values and
their places); for each direction launches and levels; the levels of whole cells. All these have 64 bits. Of
32 bits, for they number rows, are the index arrays; what tells which ranks are calls; plans; and rows that
are set to zero. Of a batch with rooms, every part has its place whatever the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.bindings import Bound, Directions, fact_names
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
from foldbatch.scheduler.rooms import Item, Placed, Rooms, beside, is_level, wholes_of
from foldbatch.scheduler.schedule import Schedule

SUMMED = 2  # addresses of a sum of rows
Ids = Mapping[tuple[int, int], Ints]
_NONE = np.zeros(0, np.int64)


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

    numbers: Ints  # ``[*] int64``; its last ones are two numbers of 32 bits each
    forward: Direction  # where that direction lies
    backward: Direction | None  # the other one, while training
    # by cell and number of its sums of rows, where the plan lies, and its targets
    sums: Mapping[tuple[int, int], tuple[int, Ints]]
    # by arena, where the rows of cotangents that are set to zero lie, after their count; and how many there
    # are at most
    zeros: Mapping[int, tuple[int, int]]
    wholes: Mapping[int, int]  # by cell with losses, where the record of a level of all its calls lies
    # by cell whose calls are gone through together, with rooms, where its axes lie, see `Placed.places`
    maps: Mapping[int, int]

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
    bound: Bound,  # the routines
    kernels: Sequence[Kernel],  # of these
    tables: Directions,  # the launch tables
    schedule: Schedule,  # the control tables
    ids: Ids,  # by cell and number of its sums, the rows of the table that are added to
    rooms: Rooms | None = None,  # a class whose `full` the schedule is: zeros stand where its batches differ
) -> PackedBatch:
    wide, runs = _IntegerRuns("int64"), _IntegerRuns("int32")
    head = np.zeros(HEADER + len(bound.types) + SUMMED * len(ids), np.int64)
    wide.add(head)
    runs.add(tables.forward.index, 1)  # so that no other place is 0, which stands for none
    maps: dict[int, int] = {}
    if rooms is not None:
        for k in sorted(wholes_of(schedule) | {k for (k, _), _ in bound.brought["loss"]}):
            maps[k] = runs.add(_NONE, rooms.starts[k][-1] - rooms.starts[k][0])
    records, directions = _levels(schedule, rooms, maps), list[Direction | None]()
    for table, own in ((tables.forward, records), (tables.backward, records[::-1])):
        if table is None:
            directions.append(None)
            continue
        launches = wide.add(table.launches.reshape(-1))
        begin, each = wide.add(own.reshape(-1)), own.shape[1]
        plans = {}
        for key, at, width, count, _ in _planned(kernels, table):
            place, targets = _plan(runs, table.index[at : at + count * width], rooms)
            plans[key] = place, len(targets)
        levels = tuple(range(begin, begin + each * len(own), each))
        directions.append(Direction(table, launches, levels, plans))
    sums = {key: _plan(runs, rows.reshape(-1), rooms) for key, rows in ids.items()}
    zeros = {}
    for arena, rows in enumerate(schedule.zero_rows if tables.backward is not None else ()):
        if len(rows) and bound.model.arenas[arena].is_float:
            listed = np.concatenate([[len(rows)], rows]) if rooms is None else _NONE
            zeros[arena] = runs.add(listed, 1 + len(rows)), len(rows)
    wholes: dict[int, int] = {}
    for (k, _), _ in bound.brought["loss"]:
        calls = len(schedule.cells[k].order)
        wholes[k] = wholes.get(k) or wide.add(np.array([0, calls, maps.get(k, 0), calls]))
    first, second = directions
    assert first is not None
    head[INDEX_AT], head[ADDRESSES_AT] = 2 * wide.end, HEADER
    runs.add(np.zeros(runs.end % 2))
    numbers = np.concatenate([*wide.parts, np.concatenate(runs.parts).view(np.int64)])
    return PackedBatch(numbers, first, second, sums, zeros, wholes, maps)


class RoomTable:
    """The packed tables of a class's batches: a batch writes its numbers at their places in a copy of one.

    That is `packed`, given the launch tables of a batch that takes all room; see `pack`.
    """

    def __init__(self, bound: Bound, kernels: Sequence[Kernel], tables: Directions, rooms: Rooms) -> None:
        model, steps = bound.model, rooms.full.steps
        names = fact_names(model.signatures, len(model.arenas))
        facts = zip(names, tables.numbers.tolist(), strict=False)
        self._index = {name: at for name, at in facts if name[0] in ("rows", "output", "segments", "copies")}
        self._rooms = rooms
        ids = {
            (k, i): np.zeros((rooms.sizes[k], *model.feeds[k][int(sums.ids.key)].type.shape), np.int64)
            for k, cell in enumerate(model.cells)
            for i, sums in enumerate(cell.sums)
            if bound.training and rooms.sizes[k]
        }
        self.packed = packed = pack(bound, kernels, tables, rooms.full, ids, rooms)
        # where calls and elements are told, and which these are; then plans: see `_planned`
        told = [(place + CALLS, rooms.totals[k][0]) for k, place in packed.wholes.items()]
        self._plans: list[tuple[int, int, int, int | None, int, int]] = []
        for direction, turn in ((packed.forward, 1), (packed.backward, -1)):
            if direction is not None:
                for place, which in zip(direction.levels, rooms.counted[::turn], strict=True):
                    told += zip((place + CALLS, *_sequences(len(which) - 1, place)), which, strict=True)
                for key, at, width, _, axis in _planned(kernels, direction.table):
                    k, stages, *_ = steps[::turn][key[1]]
                    level = rooms.counted[::turn][key[1]][axis] if is_level(stages) else None
                    self._plans.append((direction.plans[key][0], at, width, level, k, axis))
        self._told = np.array(told, np.int64).reshape(-1, 2).T.copy()

    def filled(self, schedule: Schedule, taken: Mapping[int, Item], ids: Ids) -> tuple[Placed, PackedBatch]:
        """Return a batch numbered anew, and its table; see `Rooms.place`, for ids `pack`."""
        numbers = self.packed.numbers.copy()
        ints, sums = numbers.view(np.int32)[int(numbers[INDEX_AT]) :], {}
        index = {name: ints[at:] for name, at in self._index.items()}
        placed = self._rooms.place(schedule, taken, index)
        numbers[self._told[0]] = placed.counts.take(self._told[1])
        for k, place in self.packed.maps.items():
            start, *_, end = self._rooms.starts[k]
            ints[place : place + end - start] = placed.places[start:end]
        for place, at, width, level, k, axis in self._plans:
            if level is None:
                spots = beside(placed.axes[k][axis], width)
                plan = plan_of(ints[at:].take(spots), spots)
            else:
                plan = plan_of(ints[at : at + width * int(placed.counts[level])])
            ints[place : place + len(plan)] = plan
        for key, (place, none) in self.packed.sums.items():
            rows = ids.get(key, none[:0])
            plan = plan_of(rows.reshape(-1), beside(placed.axes[key[0]][0], math.prod(rows.shape[1:])))
            ints[place : place + len(plan)] = plan
            sums[key] = place, plan[1 : 1 + plan[0]].astype(np.int64)
        for arena, (place, _) in self.packed.zeros.items():
            listed = placed.zero_rows[arena]
            ints[place] = len(listed)
            ints[place + 1 : place + 1 + len(listed)] = listed
        return placed, replace(self.packed, numbers=numbers, sums=sums)


def _plan(runs: _IntegerRuns, targets: Ints, rooms: Rooms | None) -> tuple[int, Ints]:
    """Append a plan, or with rooms zeros; return where it is, and its targets, or all there may be."""
    if rooms is not None:
        return runs.add(_NONE, 2 + 3 * len(targets)), targets
    plan = plan_of(targets)
    return runs.add(plan), plan[1 : 1 + plan[0]].astype(np.int64)


def _levels(schedule: Schedule, rooms: Rooms | None, maps: Mapping[int, int]) -> Ints:
    """Return a record of each step, see `texts.kernel_text`: ``[steps, numbers]``."""
    sequences = max((len(table.segments) for table in schedule.cells), default=0)
    records = np.zeros((len(schedule.steps), LEVEL + ELEMENTS * sequences), np.int64)
    if not schedule.steps:
        return records
    cells, _, starts, stops = zip(*schedule.steps, strict=True)
    which, first, last = np.array([cells, starts, stops], np.int64)
    records[:, 0], records[:, CALLS], records[:, ROOM] = first, last - first, last - first
    for k, table in enumerate(schedule.cells):
        if table.segments:
            own = np.flatnonzero(which == k)
            for at, segments in zip(_sequences(len(table.segments)), table.segments, strict=True):
                records[own, at] = records[own, at + 2] = segments[last[own]] - segments[first[own]]
    for row, (k, stages, _, _) in zip(records, schedule.steps, strict=True):
        if rooms is not None and not is_level(stages):
            places = [maps[k] + start - rooms.starts[k][0] for start in rooms.starts[k][:-1]]
            row[[LIVE, *(at + 1 for at in _sequences(len(places) - 1))]] = places
    return records


def _sequences(count: int, start: int = 0) -> range:
    """Return where in a record, which begins at a place, the elements of each sequence are counted."""
    return range(start + LEVEL, start + LEVEL + ELEMENTS * count, ELEMENTS)


def _planned(
    kernels: Sequence[Kernel], table: LaunchTable
) -> Iterator[tuple[tuple[int, int, int], int, int, int, int]]:
    """Yield what is added to rows that do not follow each other, by launch, level and binding.

    Then where in the index these rows are told, how many side by side, how often, and along which axis: 0 for
    calls, 1 and more for the elements of each sequence.
    """
    for number, row in enumerate(table.launches.tolist()):
        routine = kernels[row[0]].routine
        for task in kernels[row[0]].tasks:
            start = HEAD + FIELDS * task.planned
            if task.planned < 0 or row[start + FIRST] >= 0:
                continue
            at, width = row[start + INDEX], row[start + WIDTH]
            slot = routine.segments.get(task.axis)
            axis = 0 if slot is None else 1 + int(routine.slots[slot].binding.key)
            for level in range(row[1], row[2]):
                low, high = table.bounds[level].tolist()
                if slot is not None:
                    segments = row[HEAD + FIELDS * slot + INDEX]
                    low, high = table.index[[segments + low, segments + high]].tolist()
                yield (number, level, task.planned), at + low * width, width, high - low, axis
