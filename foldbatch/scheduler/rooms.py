"""Rooms: where the levels of many batches begin at the same ranks and rows, with gaps behind each level.

A batch's schedule numbers ranks and rows without gaps, so addresses differ from batch to batch. `Rooms` gives
every level a place with room for more calls than most batches have. A batch that fits is numbered anew: then
all that differs are the true counts and the index arrays, and every level lies where it lies in all batches.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from foldbatch.scheduler.layout import priority
from foldbatch.scheduler.schedule import CellTable, Index, RowSpan, Schedule, Step
from foldbatch.scheduler.trace import CellSignature

Reader = tuple[int, int]  # a cell, and the number of one of its operands
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
    """What decides whether a batch has room."""

    items: tuple[Item, ...]  # its steps
    # the operands whose rows follow each other, and are read so by no operand that comes first
    slices: frozenset[Reader]
    first: frozenset[Reader]  # those of them that store cotangents
    copies: frozenset[int]  # the cells whose calls share ranks
    listed: tuple[int, ...]  # per cell, how many rows each output goes to
    rest: tuple[int, ...]  # per arena, the rows that are in none of `slices`
    # of each of `slices` that has rows, the operand, its arena and rows; of rooms none
    runs: tuple[tuple[Reader, int, int], ...] = ()

    def rest_beside(self, slices: Collection[Reader]) -> tuple[int, ...]:
        """Return, per arena, the rows that are in none of some slices, which are among `slices`."""
        rest = list(self.rest)
        for reader, arena, rows in self.runs:
            if reader not in slices:
                rest[arena] += rows
        return tuple(rest)


def is_level(stages: Sequence[str]) -> bool:
    """Whether a step of these stages is one level; others go through all calls of a cell."""
    return "step" in stages


def wholes_of(schedule: Schedule) -> set[int]:
    """Return the cells that have steps through all of their calls."""
    return {k for k, stages, _, _ in schedule.steps if not is_level(stages)}


def shape_of(schedule: Schedule, cells: Sequence[CellSignature]) -> Shape:
    """Return the shape of a schedule."""
    items = []
    for k, stages, start, stop in schedule.steps:
        own = schedule.cells[k].segments if is_level(stages) else ()
        elements = tuple([int(part[stop]) - int(part[start]) for part in own])
        items.append(Item(k, stages, stop - start if is_level(stages) else 0, elements))
    slices, runs = set(), []
    taken: list[list[tuple[int, int]]] = [[] for _ in schedule.arena_rows]
    for k in priority(tuple(cells)):
        for number, span in enumerate(schedule.cells[k].operands):
            if span.start is None:
                continue
            start, stop = span.start, span.start + span.size
            if all(stop <= other or start >= end for other, end in taken[span.arena]) or not span.size:
                slices.add((k, number))
                if span.size:
                    taken[span.arena].append((start, stop))
                    runs.append(((k, number), span.arena, span.size))
    rest = [
        rows - sum(stop - start for start, stop in own)
        for rows, own in zip(schedule.arena_rows, taken, strict=True)
    ]
    first = [(k, i) for k, i in slices if schedule.cells[k].operands[i].first]
    copies = [k for k, table in enumerate(schedule.cells) if table.copies is not None]
    listed = [len(table.order) if table.copies is None else int(table.copies[-1]) for table in schedule.cells]
    told = frozenset(slices), frozenset(first), frozenset(copies), tuple(listed), tuple(rest), tuple(runs)
    return Shape(tuple(items), *told)


@dataclass(frozen=True, slots=True)
class Placed:
    """A batch numbered anew."""

    schedule: Schedule  # with gaps: index arrays are as long as there is room, steps are those of the rooms
    ranks: tuple[Index, ...]  # per cell ``[n] int64``: the new rank of each rank
    # per cell and sequence ``[elements] int64``: the new place of each element
    elements: tuple[tuple[Index, ...], ...]
    rows: tuple[Index, ...]  # per arena ``[rows] int64``: the new row of each row


class Rooms:
    """A class of batches: places with room for each of their levels.

    Args:
        shape: its items are the levels, with the calls and elements that there is room for; ``listed`` and
            ``rest`` are rooms, too.
        cells: the cells.
    """

    def __init__(self, shape: Shape, cells: Sequence[CellSignature]) -> None:
        self.shape = shape  # see there
        self._cells = cells
        sizes = [0] * len(cells)
        lengths = [[0] * len(cell.sequences) for cell in cells]
        starts: list[int] = []
        self._firsts: list[tuple[int, ...]] = []  # of each slot, the first element of each sequence
        marks: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in cells]
        for k, stages, calls, elements in shape.items:
            starts.append(sizes[k] if is_level(stages) else 0)
            self._firsts.append(tuple(lengths[k]))
            if is_level(stages):
                marks[k].append((sizes[k], tuple(lengths[k])))
                sizes[k] += calls
                lengths[k] = [before + more for before, more in zip(lengths[k], elements, strict=True)]
        self.sizes = tuple(sizes)  # per cell, the ranks of all its levels
        self._lengths = lengths
        heights = [0] * len(shape.rest)
        self._runs: dict[Reader, int] = {}
        tables = []
        for k, cell in enumerate(cells):
            spans = []
            for number, operand in enumerate(cell.operands):
                width, key = len(operand.columns) or 1, (k, number)
                size = sizes[k] * width if operand.sequence is None else lengths[k][operand.sequence]
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
            listed = shape.listed[k] if k in shape.copies else sizes[k]
            tables.append(
                CellTable(
                    np.arange(sizes[k]),
                    tuple(spans),
                    tuple([np.zeros(listed, np.int64) for _ in cell.outputs]),
                    tuple([self._bounds(k, s, marks[k]) for s in range(len(cell.sequences))]),
                    _NONE,
                    np.zeros(sizes[k] + 1, np.int64) if k in shape.copies else None,
                )
            )
        self._ends = heights.copy()  # where the rows begin that are in no run
        heights = [rows + more for rows, more in zip(heights, shape.rest, strict=True)]
        steps = [
            Step(k, stages, start, start + calls if is_level(stages) else sizes[k])
            for (k, stages, calls, _), start in zip(shape.items, starts, strict=True)
        ]
        stored = [0] * len(heights)
        for k, number in shape.first:
            span = tables[k].operands[number]
            stored[span.arena] += span.size
        zeros = [np.arange(rows - less) for rows, less in zip(heights, stored, strict=True)]
        # the schedule of a batch that takes all room, but for the contents of index arrays
        self.full = Schedule(tuple(tables), tuple(steps), tuple(heights), tuple(zeros), _NONE)

    def _bounds(self, k: int, s: int, marks: Sequence[tuple[int, tuple[int, ...]]]) -> Index:
        """Return segments by which each level's elements begin at their place: ``[ranks + 1]``."""
        made = np.full(self.sizes[k] + 1, self._lengths[k][s], np.int64)
        for start, firsts in reversed(marks):
            made[start] = firsts[s]
        return made

    def place(self, schedule: Schedule, slots: Sequence[int]) -> Placed:
        """Return a batch numbered anew; `slots` are those of its steps, in rising order."""
        steps = [Step(k, stages, start, start) for k, stages, start, _ in self.full.steps]
        levels: list[list[tuple[int, int, int]]] = [[] for _ in self._cells]  # start, stop and slot
        for (k, stages, start, stop), slot in zip(schedule.steps, slots, strict=True):
            begin = self.full.steps[slot].start
            steps[slot] = Step(k, stages, begin, begin + stop - start)
            if is_level(stages):
                levels[k].append((start, stop, slot))
        numbered = [self._numbered(k, table, levels[k]) for k, table in enumerate(schedule.cells)]
        ranks = tuple([ranks for ranks, _, _ in numbered])
        elements = tuple([elements for _, elements, _ in numbered])
        rows = self._rows(schedule, ranks, elements)
        tables = [self._table(k, table, rows, *numbered[k]) for k, table in enumerate(schedule.cells)]
        zeros = self._zero_rows(schedule, rows)
        made = replace(self.full, cells=tuple(tables), steps=tuple(steps), zero_rows=zeros)
        return Placed(made, ranks, elements, rows)

    def _numbered(
        self, k: int, table: CellTable, levels: Sequence[tuple[int, int, int]]
    ) -> tuple[Index, tuple[Index, ...], list[Index]]:
        """Return the new ranks of a cell; per sequence its elements' places, and where each call's begin."""
        if not levels:
            return _NONE, tuple([_NONE for _ in table.segments]), [_NONE for _ in table.segments]
        starts, stops, slots = np.array(levels, np.int64).T
        counts = stops - starts
        begins = np.array([self.full.steps[slot].start for slot in slots.tolist()], np.int64)
        ranks = np.arange(len(table.order)) + np.repeat(begins - starts, counts)
        elements, firsts = [], []
        for s, old in enumerate(table.segments):
            own = np.array([self._firsts[slot][s] for slot in slots.tolist()], np.int64)
            shifts = np.repeat(own - old[starts], counts)
            firsts.append(old[:-1] + shifts)
            elements.append(np.arange(int(old[-1])) + np.repeat(shifts, np.diff(old)))
        return ranks, tuple(elements), firsts

    def _spots(self, k: int, span: RowSpan, ranks: Index, elements: Sequence[Index]) -> Index:
        """Return where in the rows of an operand those that a batch reads stand now."""
        if span.sequence is not None:
            return elements[span.sequence]
        if span.width == 1:
            return ranks
        spots: Index = (ranks[:, None] * span.width + np.arange(span.width)).ravel()
        return spots

    def _rows(
        self, schedule: Schedule, ranks: Sequence[Index], elements: Sequence[Sequence[Index]]
    ) -> tuple[Index, ...]:
        """Return the new row of each row, per arena."""
        made = [np.full(rows, -1, np.int64) for rows in schedule.arena_rows]
        for (k, number), start in self._runs.items():
            span = schedule.cells[k].operands[number]
            if span.size:
                assert span.start is not None
                spots = self._spots(k, span, ranks[k], elements[k])
                made[span.arena][span.start : span.start + span.size] = start + spots
        for rows, end in zip(made, self._ends, strict=True):
            rest = np.flatnonzero(rows < 0)
            rows[rest] = end + np.arange(len(rest))
        return tuple(made)

    def _table(
        self,
        k: int,
        table: CellTable,
        rows: Sequence[Index],
        ranks: Index,
        elements: Sequence[Index],
        firsts: Sequence[Index],
    ) -> CellTable:
        full, count = self.full.cells[k], len(table.order)
        spans = []
        for span, old in zip(full.operands, table.operands, strict=True):
            if span.rows is None:
                spans.append(span)
                continue
            read = (
                old.rows if old.rows is not None else np.arange(old.start or 0, (old.start or 0) + old.size)
            )
            spans.append(
                span._replace(
                    rows=_put(span.size, self._spots(k, span, ranks, elements), rows[span.arena][read])
                )
            )
        copies, spots = None, ranks
        if full.copies is not None:
            own = np.arange(count + 1) if table.copies is None else table.copies
            copies = _put(len(full.copies), ranks + 1, own[1:])
            copies[ranks] = own[:-1]
            spots = np.arange(int(own[-1]))
        outputs = [
            _put(len(room), spots, rows[arena][old])
            for arena, room, old in zip(self._cells[k].outputs, full.outputs, table.outputs, strict=True)
        ]
        segments = []
        for bounds, room, first in zip(table.segments, full.segments, firsts, strict=True):
            made = room.copy()  # a level that stays empty begins at its place, too: its room is set to zero
            made[ranks + 1] = first + np.diff(bounds)
            made[ranks] = first
            segments.append(made)
        return replace(
            full, operands=tuple(spans), outputs=tuple(outputs), segments=tuple(segments), copies=copies
        )

    def _zero_rows(self, schedule: Schedule, rows: Sequence[Index]) -> tuple[Index, ...]:
        """Return, per arena, the rows there are whose cotangents no operand of the rooms stores."""
        left = [np.ones(len(own), bool) for own in rows]
        for k, number in self.shape.first:
            span = schedule.cells[k].operands[number]
            if span.size:
                assert span.start is not None
                left[span.arena][span.start : span.start + span.size] = False
        return tuple([own[mask] for own, mask in zip(rows, left, strict=True)])


def _put(size: int, spots: Index, values: Index) -> Index:
    """Return so many numbers: values at their spots, and zeros elsewhere."""
    made = np.zeros(size, np.int64)
    made[spots] = values
    return made
