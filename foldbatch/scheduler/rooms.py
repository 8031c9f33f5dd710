"""Rooms: where the levels of many batches begin at the same ranks and rows, with gaps behind each level.

A batch's schedule numbers ranks and rows without gaps, so addresses differ from batch to batch. `Rooms` gives
every level a place with room for more calls than most batches have. A batch that fits is numbered anew: then
all that differs are the true counts and the index arrays, and every level lies where it lies in all batches.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from foldbatch.scheduler.schedule import CellTable, Index, RowSpan, Schedule, Step
from foldbatch.scheduler.trace import CellSignature

Reader = tuple[int, int]  # a cell, and the number of one of its operands
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


class Rooms:
    """A capacity class: the schedule of a batch that takes all the room which the class has at each level."""

    def __init__(self, shape: Shape, cells: Sequence[CellSignature]) -> None:
        # its items are the levels, with the calls and elements there is room for; `listed` and `unsliced`
        # are rooms, too
        self.shape = shape
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
        self.runs: dict[Reader, int] = {}  # where the rows of slices begin
        tables = []
        for k, cell in enumerate(cells):
            spans = []
            for number, operand in enumerate(cell.operands):
                width, key = len(operand.columns) or 1, (k, number)
                size = rooms[k][0] * width if operand.sequence is None else rooms[k][1 + operand.sequence]
                start = rows = None
                if key in shape.slices:
                    start = self.runs[key] = heights[operand.arena]
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
        self.ends = heights.copy()  # per arena, where the rows begin that are in no run
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
        """Set the tables by which a batch is placed: where levels begin, and their room.

        Args:
            levels: the levels of each cell.
            rooms: for each cell, how many calls and elements of each sequence there is room for.
        """
        end = 0
        # of each level and axis, the first rank or element, and for how many there is room
        self.levels: list[tuple[int, int]] = []
        # of the ranks of each cell and of the elements of each of its sequences: the first level and the one
        # behind the last, then where they begin and end among the places of all axes
        self.axes: list[tuple[int, int, int, int]] = []
        # per cell, where its ranks and the elements of each sequence begin there; the end
        self.starts: list[list[int]] = []
        # per slot, the numbers of its levels, of calls and of the elements of each sequence; of a slot
        # through all calls of a cell `totals`: those of its axes, counted behind all levels
        self.counted: list[list[int]] = [[] for _ in self.shape.items]
        self.totals: list[range] = []
        axes = sum(1 + len(item.elements) for item in self.shape.items if is_level(item.stages))
        for cell_levels, sizes in zip(levels, rooms, strict=True):
            self.starts.append([end])
            for axis, size in enumerate(sizes):
                first = len(self.levels)
                for slot, firsts, room in cell_levels:
                    self.counted[slot].append(len(self.levels))
                    self.levels.append((firsts[axis], room[axis]))
                self.axes.append((first, len(self.levels), end, end + size))
                end += size
                self.starts[-1].append(end)
            self.totals.append(range(axes, axes + len(sizes)))
            axes += len(sizes)
        for slot, item in enumerate(self.shape.items):
            self.counted[slot] += () if is_level(item.stages) else self.totals[item.cell]

    def _bounds(self, k: int, s: int, elements: int) -> Index:
        """Return segments by which each level's elements begin at their place: ``[ranks + 1]``."""
        first = self.totals[k].start - len(self.levels)
        ranks, places = (self._begins(first + axis) for axis in (0, 1 + s))
        bounds = np.full(self.sizes[k] + 1, elements, np.int64)
        bounds[ranks[::-1]] = places[::-1]  # of levels without room for calls, the first one's stays
        return bounds

    def _begins(self, axis: int) -> Index:
        """Return where the levels of an axis begin: ``[levels]``."""
        first, last, _, _ = self.axes[axis]
        return np.array([begin for begin, _ in self.levels[first:last]], np.int64)
