"""A specification in NumPy of how batches are put into capacity classes; see `test_rooms`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from operator import le
from typing import Any

import numpy as np

from foldbatch.engines.cuda.fixed_kernels import plan_of
from foldbatch.planning.facts import fact_names, flat_of
from foldbatch.planning.rooms import RoomPlaces
from foldbatch.planning.table_loops import Tables
from foldbatch.scheduler.components import priority
from foldbatch.scheduler.rooms import Item, Rooms, Shape, is_level
from foldbatch.scheduler.schedule import CellTable, Index, RowSpan, Schedule
from foldbatch.scheduler.trace import CellSignature, Column

Ids = Mapping[int, Index]


@dataclass(frozen=True, slots=True)
class Placed:
    """A batch whose calls and rows have new numbers, those of a class.

    Attributes:
        axes: per cell the new rank of each rank, then of each sequence the new place of each element.
        rows: per arena the new row of each row.
        zero_rows: per arena, the rows that no operand of the rooms stores.
        counts: calls and elements of each level, then of each axis.
        places: all axes, each with its free places behind.
    """

    axes: tuple[tuple[Index, ...], ...]
    rows: Sequence[Index]
    zero_rows: Sequence[Index]
    counts: Index
    places: Index


def shape_of(schedule: Schedule, cells: Sequence[CellSignature]) -> Shape:
    """Return the shape of a scheduled batch: its steps, operands read as slices, and rows beside these."""
    items = []
    for k, stages, start, stop in schedule.steps:
        segments = schedule.cells[k].segments if is_level(stages) else ()
        elements = tuple([int(part[stop]) - int(part[start]) for part in segments])
        items.append(Item(k, stages, stop - start if is_level(stages) else 0, elements))
    slices, runs, unsliced = set(), [], list(schedule.arena_rows)
    taken: list[list[tuple[int, int]]] = [[] for _ in schedule.arena_rows]
    for k in priority(tuple(cells)):
        for number, span in enumerate(schedule.cells[k].operands):
            if span.start is None:
                continue
            start, stop = span.start, span.start + span.size
            if (
                all(stop <= taken_start or start >= end for taken_start, end in taken[span.arena])
                or not span.size
            ):
                slices.add((k, number))
                unsliced[span.arena] -= span.size
                if span.size:
                    taken[span.arena].append((start, stop))
                    runs.append(((k, number), span.arena, span.size))
    first = [(k, i) for k, i in slices if schedule.cells[k].operands[i].first]
    copies = [k for k, table in enumerate(schedule.cells) if table.copies is not None]
    listed = [len(table.order) if table.copies is None else int(table.copies[-1]) for table in schedule.cells]
    sets = frozenset(slices), frozenset(first), frozenset(copies), tuple(listed), tuple(unsliced), tuple(runs)
    return Shape(tuple(items), *sets)


def slots_of(room: Shape, shape: Shape) -> list[int] | None:
    """Return the slots of a class that a batch's steps take; None if it does not fit."""
    slots = _slots(room.items, shape.items)
    fits = slots is not None and _takes_wholes(room, shape, slots) and _holds(room, shape)
    return slots if fits else None


def _holds(room: Shape, shape: Shape) -> bool:
    """Return whether a class has room for a batch, but for its steps: slices, shared calls, and rows."""
    return (
        room.slices <= shape.slices
        and room.first <= shape.first
        and room.copies >= shape.copies
        and all(a >= b for a, b in zip(room.listed, shape.listed, strict=True))
        and all(a >= b for a, b in zip(room.unsliced, shape.unsliced_beside(room.slices), strict=True))
    )


def _slots(slots: Sequence[Item], items: Sequence[Item]) -> list[int] | None:
    """Return the first slots that items fit into, in order; None if there are none."""
    places, free = [], 0
    for item in items:
        while free < len(slots) and not _fits(slots[free], item):
            free += 1
        if free == len(slots):
            return None
        places.append(free)
        free += 1
    return places


def _takes_wholes(room: Shape, shape: Shape, slots: Sequence[int]) -> bool:
    """Whether a batch takes all slots through all calls of its cells: one that it left would run, too."""
    cells, taken = {item.cell for item in shape.items}, set(slots)
    unused = [slot for number, slot in enumerate(room.items) if number not in taken]
    return all(is_level(slot.stages) or slot.cell not in cells for slot in unused)


def _fits(slot: Item, item: Item) -> bool:
    return (
        slot[:2] == item[:2]
        and item.calls + bool(item.elements) <= slot.calls
        and all(map(le, item.elements, slot.elements))
    )


def place(
    rooms: Rooms,
    cells: Sequence[CellSignature],
    schedule: Schedule,
    taken: Mapping[int, Item],
    index: Mapping[tuple[Hashable, ...], Column],
) -> Placed:
    """Return a batch numbered anew, and write its index arrays.

    Args:
        rooms: the class.
        cells: of the model.
        schedule: of the batch.
        taken: the items of its shape by slot, in order.
        index: copies of the index arrays of `full`, in which this one's are written; by their names.
    """
    levels = {slot: (item.calls, *item.elements) for slot, item in taken.items() if is_level(item.stages)}
    begins, room = np.array(rooms.levels, np.int64).reshape(-1, 2).T
    counts = np.zeros(len(begins), np.int64)
    for slot, sizes_of_level in levels.items():
        counts[rooms.counted[slot]] = sizes_of_level
    places = [np.zeros(0, np.int64)]
    for first, last, _, _ in rooms.axes:
        level = slice(first, last)
        starts = np.concatenate([begins[level], begins[level] + counts[level]])
        sizes = np.concatenate([counts[level], room[level] - counts[level]])
        places += [start + np.arange(size) for start, size in zip(starts, sizes, strict=True)]
    every = np.concatenate(places)
    lengths = [(len(table.order), *[int(part[-1]) for part in table.segments]) for table in schedule.cells]
    axes = tuple(
        tuple([every[start : start + n] for start, n in zip(cell_starts, cell_lengths, strict=False)])
        for cell_starts, cell_lengths in zip(rooms.starts, lengths, strict=True)
    )
    rows, zero_rows = _rows(rooms, schedule, axes)
    for k, table in enumerate(schedule.cells):
        if lengths[k][0]:
            _write(rooms, cells, k, table, axes[k], rows, counts, index)
    counts = np.concatenate([counts, np.array([n for sizes in lengths for n in sizes], np.int64)])
    return Placed(axes, rows, zero_rows, counts, every)


def fill(places: RoomPlaces, rooms: Rooms, placed: Placed, ids: Ids, numbers: Index, ints: Any) -> None:
    """Write what of a batch in a class stands beside its index arrays; `ids` by number of the sum."""
    axes = [axis for cell_axes in placed.axes for axis in cell_axes]
    for at, number in places.counts:
        numbers[at] = placed.counts[number]
    for k, at in places.maps.items():
        start, *_, end = rooms.starts[k]
        ints[at : at + end - start] = placed.places[start:end]
    for at, index, width, level, axis in places.plans:
        if level < 0:
            spots = beside(axes[axis], width)
            plan = plan_of(ints[index:].take(spots), spots)
        else:
            plan = plan_of(ints[index : index + width * int(placed.counts[level])])
        ints[at : at + len(plan)] = plan
    for number, (at, axis, width) in enumerate(places.sums):
        plan = plan_of(ids[number].reshape(-1), beside(axes[axis], width))
        ints[at : at + len(plan)] = plan
    for arena, at in places.zeros:
        listed = placed.zero_rows[arena]
        ints[at] = len(listed)
        ints[at + 1 : at + 1 + len(listed)] = listed


def _rows(
    rooms: Rooms, schedule: Schedule, axes: Sequence[Sequence[Index]]
) -> tuple[list[Index], list[Index]]:
    """Return the new row of each row, per arena; and those that no operand of the rooms stores."""
    new_rows = [np.full(rows, -1, np.int64) for rows in schedule.arena_rows]
    counts, cuts = list(schedule.arena_rows), [[0, rows] for rows in schedule.arena_rows]
    for (k, number), start in rooms.runs.items():
        span = schedule.cells[k].operands[number]
        if span.size:
            assert span.start is not None
            stop = span.start + span.size
            new_rows[span.arena][span.start : stop] = start + _spots(span, axes[k])
            counts[span.arena] -= span.size
            cuts[span.arena] += (span.start, stop) if (k, number) in rooms.shape.first else ()
    zeros = []
    for rows, end, count, cut in zip(new_rows, rooms.ends, counts, map(sorted, cuts), strict=True):
        if count:
            rows[rows < 0] = np.arange(end, end + count)
        zeros.append(np.concatenate([rows[a:b] for a, b in zip(cut[::2], cut[1::2], strict=True)]))
    return new_rows, zeros


def _write(
    rooms: Rooms,
    cells: Sequence[CellSignature],
    k: int,
    table: CellTable,
    axes: Sequence[Index],
    rows: Sequence[Index],
    counts: Index,
    index: Mapping[tuple[Hashable, ...], Column],
) -> None:
    """Write the index arrays of a cell: rows of operands and results, shared calls, and segments."""
    full, (ranks, *_) = rooms.full.cells[k], axes
    for number, (span, old) in enumerate(zip(full.operands, table.operands, strict=True)):
        if span.rows is not None:
            new_rows, start = rows[span.arena], old.start or 0
            read = new_rows[start : start + old.size] if old.rows is None else new_rows.take(old.rows)
            index["rows", k, number][_spots(span, axes)] = read
    spots: Any = ranks
    if full.copies is not None:
        copies = np.arange(len(ranks) + 1) if table.copies is None else table.copies
        _bound(index["copies", k], ranks, copies[:-1], copies[1:])
        spots = slice(int(copies[-1]))
    for number, (arena, old_rows) in enumerate(zip(cells[k].outputs, table.outputs, strict=True)):
        index["output", k, number][spots] = rows[arena].take(old_rows)
    begins = np.array([begin for begin, _ in rooms.levels], np.int64)
    first = rooms.totals[k].start - len(rooms.levels)
    levels = [slice(*axis[:2]) for axis in rooms.axes[first : first + 1 + len(table.segments)]]
    calls, *elements = [counts[level] for level in levels]
    for s, (bounds, sizes) in enumerate(zip(table.segments, elements, strict=True)):
        shifts = begins[levels[1 + s]] - np.cumsum(sizes) + sizes
        firsts = bounds[:-1] + np.repeat(shifts, calls)
        # a level that stays empty begins at its place, too: its room is set to zero
        _bound(index["segments", k, s], ranks, firsts, firsts + np.diff(bounds))


def beside(spots: Index, width: int) -> Index:
    """Return the places of rows side by side, so many for each spot.

    >>> beside(np.array([0, 3]), 2)
    array([0, 1, 6, 7])
    """
    if width == 1:
        return spots
    places = np.empty((len(spots), width), np.int64)
    for column in range(width):  # quicker than sums of short rows
        np.add(spots * width, column, out=places[:, column])
    return places.reshape(-1)


def _spots(span: RowSpan, axes: Sequence[Index]) -> Index:
    """Return where in the rows of an operand those that a batch reads stand now."""
    return beside(axes[0], span.width) if span.sequence is None else axes[1 + span.sequence]


def _bound(target: Column, ranks: Index, firsts: Index, lasts: Index) -> None:
    """Write where what belongs to each rank begins, and ends."""
    target[ranks + 1] = lasts
    target[ranks] = firsts


def index_places(rooms: Rooms, cells: Sequence[CellSignature]) -> tuple[dict[tuple[Hashable, ...], int], int]:
    """Return where the index arrays of a class lie in one array, by name, and the size of that array."""
    flat = flat_of(rooms.full)
    facts = flat.memory[flat.header[Tables.facts_at] : flat.header[Tables.zeros]].tolist()
    names = fact_names(cells, len(rooms.full.arena_rows))
    return dict(zip(names, facts, strict=True)), flat.header[Tables.index_end]
