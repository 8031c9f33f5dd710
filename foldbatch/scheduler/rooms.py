"""Rooms: where the levels of many batches begin at the same ranks and rows, with gaps behind each level.

A batch's schedule numbers ranks and rows without gaps, so addresses differ from batch to batch. `Rooms` gives
every level a place with room for more calls than most batches have. A batch that fits is numbered anew: then
all that differs are the true counts and the index arrays, and every level lies where it lies in all batches.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldbatch.scheduler.components import priority
from foldbatch.scheduler.schedule import CellTable, Index, RowSpan, Schedule, Step
from foldbatch.scheduler.trace import CellSignature, Column

Reader = tuple[int, int]  # a cell, and the number of one of its operands
Rows = NDArray[np.int32]
IndexArrays = Mapping[tuple[Hashable, ...], Column]
_Level = tuple[int, tuple[int, ...], tuple[int, ...]]  # a slot; begins and rooms of its calls and elements
_NONE = np.zeros(0, np.int64)


class Item(NamedTuple):
    """A step: its cell and stages, its calls, and the elements of each of their sequences.

    A step that goes through all calls of a cell, before or after its levels, has none of its own.
    """

    cell: int
    stages: tuple[str, ...]
    calls: int
    elements: tuple[int, ...]


class Shape(NamedTuple):
    """The sizes that decide whether a batch fits into a capacity class."""

    items: tuple[Item, ...]  # its steps
    # the operands whose rows follow each other, and are read so by no operand that comes first
    slices: frozenset[Reader]
    first: frozenset[Reader]  # those of them that store cotangents
    copies: frozenset[int]  # the cells whose calls share ranks
    listed: tuple[int, ...]  # per cell, how many rows each output goes to
    unsliced: tuple[int, ...]  # per arena, the rows that are in none of `slices`
    # of each of `slices` that has rows, the operand, its arena and rows; of rooms none
    runs: tuple[tuple[Reader, int, int], ...] = ()

    def unsliced_beside(self, slices: Collection[Reader]) -> tuple[int, ...]:
        """Return, per arena, the rows that are in none of some slices, which are among `slices`."""
        unsliced = list(self.unsliced)
        for reader, arena, rows in self.runs:
            if reader not in slices:
                unsliced[arena] += rows
        return tuple(unsliced)


def is_level(stages: Sequence[str]) -> bool:
    """Whether a step of these stages is one level; others go through all calls of a cell."""
    return "step" in stages


def wholes_of(schedule: Schedule) -> set[int]:
    """Return the cells that have steps through all of their calls."""
    return {k for k, stages, _, _ in schedule.steps if not is_level(stages)}


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


@dataclass(frozen=True, slots=True)
class Placed:
    """A batch whose calls and rows have new numbers, those of a capacity class."""

    # per cell ``[n] int64``: the new rank of each rank; then of each sequence the new place of each element
    axes: tuple[tuple[Index, ...], ...]
    rows: Sequence[Rows]  # per arena ``[rows]``: the new row of each row
    zero_rows: Sequence[Rows]  # per arena, the rows that no operand of the rooms stores
    # ``[*] int64``: calls and elements of each level, then of each cell, see `Rooms.counted`
    counts: Index
    places: Index  # ``[*] int64``: all axes, each with its free places behind, see `Rooms.starts`

    @property
    def ranks(self) -> tuple[Index, ...]:
        """Per cell ``[n] int64``: the new rank of each rank."""
        return tuple([cell_axes[0] for cell_axes in self.axes])


class Rooms:
    """A capacity class: the schedule of a batch that takes all the room which the class has at each level."""

    def __init__(self, shape: Shape, cells: Sequence[CellSignature]) -> None:
        # its items are the levels, with the calls and elements there is room for; `listed` and `unsliced`
        # are rooms, too
        self.shape = shape
        self._cells = cells
        # per cell, how many calls and elements of each sequence there is room for
        rooms = [(0,) * (1 + len(cell.sequences)) for cell in cells]
        levels: list[list[_Level]] = [[] for _ in cells]
        starts = [0] * len(shape.items)
        for slot, (k, stages, calls, elements) in enumerate(shape.items):
            if is_level(stages):
                starts[slot] = rooms[k][0]
                levels[k].append((slot, rooms[k], (calls, *elements)))
                rooms[k] = tuple(a + b for a, b in zip(rooms[k], (calls, *elements), strict=True))
        self.sizes = tuple(cell_rooms[0] for cell_rooms in rooms)  # per cell, the ranks of all its levels
        self._number(levels, rooms)
        heights = [0] * len(shape.unsliced)
        self._runs: dict[Reader, int] = {}
        tables = []
        for k, cell in enumerate(cells):
            spans = []
            for number, operand in enumerate(cell.operands):
                width, key = len(operand.columns) or 1, (k, number)
                size = rooms[k][0] * width if operand.sequence is None else rooms[k][1 + operand.sequence]
                start = rows = None
                if key in shape.slices:
                    start = self._runs[key] = heights[operand.arena]
                    heights[operand.arena] += size
                else:
                    rows = np.zeros(size, np.int64)
                spans.append(
                    RowSpan(
                        operand.arena, width, operand.sequence, size, start, rows, first=key in shape.first
                    )
                )
            listed = shape.listed[k] if k in shape.copies else rooms[k][0]
            tables.append(
                CellTable(
                    np.arange(rooms[k][0]),
                    tuple(spans),
                    tuple([np.zeros(listed, np.int64) for _ in cell.outputs]),
                    tuple([self._bounds(k, s, size) for s, size in enumerate(rooms[k][1:])]),
                    _NONE,
                    np.zeros(rooms[k][0] + 1, np.int64) if k in shape.copies else None,
                )
            )
        self._ends = heights.copy()  # where the rows begin that are in no run
        heights = [rows + unsliced for rows, unsliced in zip(heights, shape.unsliced, strict=True)]
        steps = [
            Step(k, stages, start, start + calls if is_level(stages) else rooms[k][0])
            for (k, stages, calls, _), start in zip(shape.items, starts, strict=True)
        ]
        zeros = heights.copy()
        for k, number in shape.first:
            span = tables[k].operands[number]
            zeros[span.arena] -= span.size
        # that of a batch that takes all room, but for the contents of index arrays
        self.full = Schedule(tuple(tables), tuple(steps), tuple(heights), tuple(map(np.arange, zeros)), _NONE)

    def _number(self, levels: Sequence[Sequence[_Level]], rooms: Sequence[Sequence[int]]) -> None:
        """Set the tables by which a batch is placed: where levels begin, their room, and their order.

        Args:
            levels: the levels of each cell.
            rooms: for each cell, how many calls and elements of each sequence there is room for.
        """
        begins: list[int] = []
        capacities, order, end = [], [], 0
        # per cell, where in `Placed.places` its ranks and the elements of each sequence begin; the end
        self.starts: list[list[int]] = []
        # per slot, where its calls and the elements of each sequence stand in `Placed.counts`; `totals`: the
        # same of all calls of each cell
        self.totals: list[range] = []
        self.counted: list[list[int]] = [[] for _ in self.shape.items]
        self._levels: list[list[slice]] = []  # per cell and axis, its levels
        total = axes = sum(1 + len(item.elements) for item in self.shape.items if is_level(item.stages))
        for cell_levels, sizes in zip(levels, rooms, strict=True):
            self.starts.append([end])
            self._levels.append([])
            for axis, size in enumerate(sizes):
                first = len(begins)
                for slot, firsts, room in cell_levels:
                    self.counted[slot].append(len(begins))
                    begins.append(firsts[axis])
                    capacities.append(room[axis])
                self._levels[-1].append(slice(first, len(begins)))
                order += [*range(first, len(begins)), *range(total + first, total + len(begins))]
                end += size
                self.starts[-1].append(end)
            self.totals.append(range(axes, axes + len(sizes)))
            axes += len(sizes)
        for slot, item in enumerate(self.shape.items):
            self.counted[slot] += () if is_level(item.stages) else self.totals[item.cell]
        self._begins, self._room, self._order = (
            np.array(numbers, np.int64) for numbers in (begins, capacities, order)
        )
        self._all = np.arange(end)

    def _bounds(self, k: int, s: int, elements: int) -> Index:
        """Return segments by which each level's elements begin at their place: ``[ranks + 1]``."""
        ranks, places = (self._begins[self._levels[k][axis]] for axis in (0, 1 + s))
        bounds = np.full(self.sizes[k] + 1, elements, np.int64)
        bounds[ranks[::-1]] = places[::-1]  # of levels without room for calls, the first one's stays
        return bounds

    def place(self, schedule: Schedule, taken: Mapping[int, Item], index: IndexArrays) -> Placed:
        """Return a batch numbered anew, and write its index arrays.

        Args:
            schedule: of the batch.
            taken: the items of its shape by slot, in order.
            index: copies of the index arrays of `full`, in which this one's are written; by their names, see
                `foldbatch.engines.bindings`. They may be longer.
        """
        levels = {slot: (item.calls, *item.elements) for slot, item in taken.items() if is_level(item.stages)}
        counts = np.zeros(len(self._begins), np.int64)
        where = [n for slot in levels for n in self.counted[slot]]
        counts[where] = [n for sizes_of_level in levels.values() for n in sizes_of_level]
        # of each axis the places that are taken, and then those that are free
        sizes = np.concatenate([counts, self._room - counts]).take(self._order)
        begins = np.concatenate([self._begins, self._begins + counts]).take(self._order)
        places = np.repeat(begins - np.cumsum(sizes) + sizes, sizes)
        places += self._all
        lengths = [
            (len(table.order), *[int(part[-1]) for part in table.segments]) for table in schedule.cells
        ]
        axes = tuple(
            tuple([places[start : start + n] for start, n in zip(cell_starts, cell_lengths, strict=False)])
            for cell_starts, cell_lengths in zip(self.starts, lengths, strict=True)
        )
        rows, zero_rows = self._rows(schedule, axes)
        for k, table in enumerate(schedule.cells):
            if lengths[k][0]:
                self._write(k, table, axes[k], rows, counts, index)
        counts = np.concatenate([counts, [n for cell_lengths in lengths for n in cell_lengths]])
        return Placed(axes, rows, zero_rows, counts, places)

    def _rows(self, schedule: Schedule, axes: Sequence[Sequence[Index]]) -> tuple[list[Rows], list[Rows]]:
        """Return the new row of each row, per arena; and those that no operand of the rooms stores."""
        new_rows = [np.full(rows, -1, np.int32) for rows in schedule.arena_rows]
        counts, cuts = list(schedule.arena_rows), [[0, rows] for rows in schedule.arena_rows]
        for (k, number), start in self._runs.items():
            span = schedule.cells[k].operands[number]
            if span.size:
                assert span.start is not None
                stop = span.start + span.size
                new_rows[span.arena][span.start : stop] = start + _spots(span, axes[k])
                counts[span.arena] -= span.size
                cuts[span.arena] += (span.start, stop) if (k, number) in self.shape.first else ()
        zeros = []
        for rows, end, count, cut in zip(new_rows, self._ends, counts, map(sorted, cuts), strict=True):
            if count:
                rows[rows < 0] = np.arange(end, end + count)
            zeros.append(np.concatenate([rows[a:b] for a, b in zip(cut[::2], cut[1::2], strict=True)]))
        return new_rows, zeros

    def _write(
        self,
        k: int,
        table: CellTable,
        axes: Sequence[Index],
        rows: Sequence[Rows],
        counts: Index,
        index: IndexArrays,
    ) -> None:
        """Write the index arrays of a cell: rows of operands and results, shared calls, and segments."""
        full, (ranks, *_) = self.full.cells[k], axes
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
        for number, (arena, old_rows) in enumerate(zip(self._cells[k].outputs, table.outputs, strict=True)):
            index["output", k, number][spots] = rows[arena].take(old_rows)
        calls, *elements = [counts[level] for level in self._levels[k]]
        for s, (bounds, sizes) in enumerate(zip(table.segments, elements, strict=True)):
            shifts = self._begins[self._levels[k][1 + s]] - np.cumsum(sizes) + sizes
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
