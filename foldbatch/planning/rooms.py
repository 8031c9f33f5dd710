"""Capacity classes as arrays: the sizes of batches and of classes, and the numbers of a batch in its class.

`room_loops` reads and writes them. What a class is, `foldbatch.scheduler.rooms` says.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

import numpy as np

from foldbatch.planning.compiled import loops
from foldbatch.planning.constants import model_constants
from foldbatch.planning.facts import STAGE_NAMES
from foldbatch.planning.layout import LAYOUTS
from foldbatch.planning.room_loops import Classes, Room, Sizes, SpanSize, StepSize
from foldbatch.planning.table_loops import DIGITS, Tables
from foldbatch.scheduler.components import components
from foldbatch.scheduler.rooms import Item, Rooms, Shape
from foldbatch.scheduler.schedule import Flat, Index
from foldbatch.scheduler.trace import CellSignature, Ints


class Placed(NamedTuple):
    """A batch whose calls and rows have new numbers, those of a capacity class."""

    ranks: Sequence[Index]  # per cell ``[n] int64``: the new rank of each rank
    rows: Sequence[Index]  # per arena ``[rows] int64``: the new row of each row


class Measures:
    """The sizes of a model's batches and classes, as arrays of the header `room_loops.Sizes`."""

    def __init__(self, cells: Sequence[CellSignature], arenas: int) -> None:
        self.cells, self.arenas = tuple(cells), arenas
        phases, flags = components(self.cells), ((),) * len(self.cells)
        self.table = model_constants(self.cells, arenas, LAYOUTS["consumer"], phases, flags).table
        self._item = StepSize.size + max((len(cell.sequences) for cell in cells), default=0)
        self._readers = [(k, i) for k, cell in enumerate(self.cells) for i in range(len(cell.operands))]
        self._base = Sizes.size + SpanSize.size * len(self._readers) + 2 * len(self.cells) + arenas

    def sizes(self, schedule: Flat) -> Index:
        """Return the sizes of a batch, with room for its slots."""
        sizes = np.empty(self._base + schedule.header[Tables.steps] * (1 + self._item), np.int64)
        sizes[Sizes.item] = self._item
        loops().measure(self.table, schedule.memory, sizes)
        return sizes

    def sizes_of(self, shape: Shape) -> Index:
        """Return a shape as an array; see `shape_of`."""
        items = np.zeros((len(shape.items), self._item), np.int64)
        for row, (k, stages, calls, elements) in zip(items, shape.items, strict=True):
            row[: StepSize.size] = k, STAGE_NAMES.index(stages), calls, len(elements)
            row[StepSize.size : StepSize.size + len(elements)] = elements
        runs = {reader: (arena, rows) for reader, arena, rows in shape.runs}
        spans = [
            (reader in shape.slices, reader in shape.first, *runs.get(reader, (0, 0)))
            for reader in self._readers
        ]
        shared = [(k in shape.copies, listed) for k, listed in enumerate(shape.listed)]
        parts = [items.ravel(), *(np.array(part, np.int64).ravel() for part in (spans, shared))]
        parts += [np.array(shape.unsliced, np.int64), np.zeros(len(shape.items), np.int64)]
        starts = accumulate(map(len, parts[:-1]), initial=Sizes.size)
        return np.concatenate([np.array([len(shape.items), self._item, *starts], np.int64), *parts])

    def shape_of(self, sizes: Index) -> Shape:
        """Return the shape of a batch, given its sizes."""
        steps, item, *starts, _ = sizes[: Sizes.size].tolist()
        items, spans, shared, unsliced = (
            sizes[a:b] for a, b in zip(starts, [*starts[1:], starts[-1] + self.arenas], strict=True)
        )
        rows = dict(zip(self._readers, spans.reshape(-1, SpanSize.size).tolist(), strict=True))
        copies, listed = shared.reshape(-1, 2).T.tolist()
        return Shape(
            tuple(
                [
                    Item(k, STAGE_NAMES[stage], calls, tuple(elements[:count]))
                    for k, stage, calls, count, *elements in items.reshape(steps, item).tolist()
                ]
            ),
            frozenset(reader for reader, (sliced, *_) in rows.items() if sliced),
            frozenset(reader for reader, (_, first, *_) in rows.items() if first),
            frozenset(k for k, shares in enumerate(copies) if shares),
            tuple(listed),
            tuple(unsliced.tolist()),
            tuple([(reader, arena, size) for reader, (_, _, arena, size) in rows.items() if size]),
        )

    def classes(self, rooms: Sequence[Rooms]) -> Index:
        """Return classes as one array, in which `find` looks for the first that fits."""
        shapes = [self.sizes_of(room.shape) for room in rooms]
        begin = Classes.size + len(shapes)
        starts = list(accumulate(map(len, shapes), initial=begin))[:-1] if shapes else []
        return np.concatenate([np.array([len(shapes), *starts], np.int64), *shapes])

    def find(self, classes: Index, sizes: Index) -> int:
        """Return the number of the first class that a batch fits into, or -1; its slots are written."""
        return loops().find(self.table, classes, sizes)


class RoomPlaces(NamedTuple):
    """The places of the numbers of a class in its packed table."""

    # index arrays by their names, see `foldbatch.planning.facts`
    index_arrays: Mapping[tuple[Hashable, ...], int]
    maps: Mapping[int, int]  # the axes of cells whose calls are gone through together, by cell
    # where a size is written among the numbers of 64 bits, and which, see `Rooms.counted`
    counts: Sequence[tuple[int, int]]
    plans: Sequence[tuple[int, ...]]  # records of `room_loops.Plan`
    sums: Sequence[tuple[int, ...]]  # records of `room_loops.Sum`
    zeros: Sequence[tuple[int, int]]  # by arena, the rows that are set to zero
    terms: int  # of a plan, at most


class RoomWriter:
    """Writes the numbers of batches in a class."""

    def __init__(self, measures: Measures, rooms: Rooms, places: RoomPlaces) -> None:
        self._measures = measures
        self._axes = rooms.axes
        self._places = rooms.axes[-1][-1] if rooms.axes else 0
        slot = max(map(len, rooms.counted), default=0)
        cells, index = list(enumerate(measures.cells)), places.index_arrays
        parts: list[Sequence[Sequence[int]]] = [
            rooms.levels,
            rooms.axes,
            [(*levels, *[0] * (slot - len(levels))) for levels in rooms.counted],
            [
                (rooms.runs.get((k, i), -1), (k, i) in rooms.shape.first, index["rows", k, i])
                for k, cell in cells
                for i in range(len(cell.operands))
            ],
            [[index["output", k, j] for k, cell in cells for j in range(len(cell.outputs))]],
            [[index["segments", k, s] for k, cell in cells for s in range(len(cell.sequences))]],
            [(index["copies", k], places.maps.get(k, -1)) for k, _ in cells],
            [rooms.ends],
            places.counts,
            places.plans,
            places.sums,
            places.zeros,
        ]
        flat = [list(chain.from_iterable(part)) for part in parts]
        head = np.zeros(Room.size, np.int64)
        room = Room(head)
        (
            room.levels_at,
            room.axes_at,
            room.slots_at,
            room.spans_at,
            room.outputs_at,
            room.segments_at,
            room.shared_at,
            room.ends_at,
            room.counts_at,
            room.plans_at,
            room.sums_at,
            room.zeros_at,
        ) = accumulate(map(len, flat[:-1]), initial=Room.size)
        room.levels, room.places, room.slot, room.work = len(rooms.levels), self._places, slot, places.terms
        room.counts, room.plans, room.sums, room.zeros = map(len, parts[-4:])
        self._table = np.concatenate([head, np.array([*chain.from_iterable(flat)], np.int64)])
        sizes = len(rooms.levels) + len(rooms.axes) + measures.arenas + 1 + sum(rooms.full.arena_rows)
        self._scratch = sizes + 5 * places.terms + DIGITS + 1

    def write(self, schedule: Flat, sizes: Index, ids: Index, numbers: Index, ints: Ints) -> Placed:
        """Write a batch's numbers of 64 and of 32 bits, and return its new ranks and rows.

        Args:
            schedule: of the batch.
            sizes: of the batch; with its slots in the class, see `Measures.find`.
            ids: those of the sums of rows of tables, one after the other.
            numbers: the table of 64 bits.
            ints: that of 32 bits.
        """
        end = schedule.header[Tables.zeros]
        arena_rows = schedule.memory[end - self._measures.arenas : end].tolist()
        placed = np.empty(self._places + sum(arena_rows), np.int64)
        work = np.empty(self._scratch, np.int64)
        tables = self._measures.table, self._table, schedule.memory, sizes, ids
        loops().place(*tables, numbers, ints, placed, work)
        ranks, axis = [], 0
        for cell, order in zip(self._measures.cells, schedule.orders, strict=True):
            start = self._axes[axis][2]
            ranks.append(placed[start : start + len(order)])
            axis += 1 + len(cell.sequences)
        bounds = [*accumulate(arena_rows, initial=self._places)]
        return Placed(ranks, [placed[a:b] for a, b in pairwise(bounds)])
