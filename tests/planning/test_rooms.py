"""Rooms: every batch of a class has its levels at the same ranks and rows, and reads what it read before.

Sizes, classes and numbers of the loops are the same to the bit as those of an oracle in NumPy.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.engines.cuda.captured import learn
from foldbatch.planning.facts import flat_of
from foldbatch.planning.layout import LAYOUTS
from foldbatch.planning.merge import merge
from foldbatch.planning.policies import COMPILED
from foldbatch.planning.rooms import Measures, Placed, RoomPlaces, RoomWriter
from foldbatch.planning.sharing import SHARES
from foldbatch.planning.tables import build
from foldbatch.scheduler.rooms import Item, Rooms, Shape, is_level
from foldbatch.scheduler.schedule import Index, Schedule
from foldbatch.scheduler.trace import CellSignature
from tests.engines.cuda import trees
from tests.planning import rooming
from tests.planning.random_traces import Setting, settings_of
from tests.planning.test_oracle import TRACES
from tests.planning.ways import WAYS, planned_by

BATCHES = [trees.TREES, trees.TREES[:1], trees.TREES[1:], [trees.TREES[0]] * 5]


def _chain() -> fb.Block:
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 3))
    return words >> fb.RNN(fb.GRUCell(4)) >> fb.GetItem(1) >> fb.Function(fb.ops.sum) >> fb.Loss()


MODELS = {"tree": (trees.model, BATCHES), "chain": (_chain, [[[1, 2, 3], [4]], [[2]], [[5, 5], [1, 2]]])}


def _roomy(shape: Shape, shapes: Sequence[Shape]) -> Shape:
    """Return the shape of one batch with room for 40 calls or elements a level, as all batches allow."""
    items = [
        Item(k, stages, 40 if is_level(stages) else 0, tuple(40 for _ in elements))
        for k, stages, _, elements in shape.items
    ]
    return Shape(
        tuple(items),
        frozenset.intersection(*(each.slices for each in shapes)),
        frozenset.intersection(*(each.first for each in shapes)),
        frozenset[int]().union(*(each.copies for each in shapes)),
        tuple(40 for _ in shape.listed),
        tuple(40 for _ in shape.unsliced),
    )


def _reads(schedule: Schedule, cell: int, number: int, ranks: np.ndarray) -> np.ndarray:
    """Return the rows that an operand reads for some ranks."""
    table, span = schedule.cells[cell], schedule.cells[cell].operands[number]
    if span.sequence is not None:
        bounds = table.segments[span.sequence]
        spots = np.concatenate([np.arange(bounds[r], bounds[r + 1]) for r in ranks] or [np.zeros(0, int)])
    else:
        spots = (ranks[:, None] * span.width + np.arange(span.width)).ravel()
    return span.start + spots if span.rows is None else span.rows[spots]


def shape_of(schedule: Schedule, cells: Sequence[CellSignature]) -> Shape:
    """Return the shape of a batch, as the loops measure it."""
    measures = Measures(cells, len(schedule.arena_rows))
    return measures.shape_of(measures.sizes(flat_of(schedule)))


def _written(
    measures: Measures, rooms: Rooms, places: RoomPlaces, schedule: Schedule, sizes: Index, size: int
) -> tuple[Placed, Any]:
    ints = np.zeros(size, np.int32)
    ids, numbers = np.zeros(0, np.int64), np.zeros(0, np.int64)
    return RoomWriter(measures, rooms, places).write(flat_of(schedule), sizes, ids, numbers, ints), ints


def _with_index(full: Schedule, index: dict[Any, int], ints: Any) -> Schedule:
    """Return the schedule of a class with the index arrays of a batch."""

    def at(like: Any, *name: Any) -> Any:
        return None if like is None else ints[index[name] : index[name] + len(like)]

    tables = [
        replace(
            table,
            operands=tuple(
                span._replace(rows=at(span.rows, "rows", k, i)) for i, span in enumerate(table.operands)
            ),
            outputs=tuple(at(rows, "output", k, j) for j, rows in enumerate(table.outputs)),
            segments=tuple(at(bounds, "segments", k, s) for s, bounds in enumerate(table.segments)),
            copies=at(table.copies, "copies", k),
        )
        for k, table in enumerate(full.cells)
    ]
    return replace(full, cells=tuple(tables))


@pytest.mark.parametrize("model", MODELS)
def test_a_batch_reads_and_writes_what_it_did_at_places_of_the_class(model: str) -> None:
    make, batches = MODELS[model]
    program = fb.compile(make(), "numpy")
    cells = program.model.signatures
    schedules = [fb.program.schedule(program, batch).schedule for batch in batches]
    shapes = [shape_of(schedule, cells) for schedule in schedules]
    rooms = Rooms(_roomy(max(shapes, key=lambda shape: len(shape.items)), shapes), cells)
    measures = Measures(cells, len(schedules[0].arena_rows))
    index, size = rooming.index_places(rooms, cells)
    zeros, ends = [], [size]
    for arena, rows in enumerate(rooms.full.zero_rows):
        zeros.append((arena, ends[-1]))
        ends.append(ends[-1] + 1 + len(rows))
    places = RoomPlaces(index, {}, [], [], [], zeros, 0)
    for schedule in schedules:
        sizes = measures.sizes(flat_of(schedule))
        assert measures.find(measures.classes([rooms]), sizes) == 0
        placed, ints = _written(measures, rooms, places, schedule, sizes, ends[-1])
        full = _with_index(rooms.full, index, ints)
        for rows, room in zip(placed.rows, full.arena_rows, strict=True):
            assert len(np.unique(rows)) == len(rows)
            assert rows.max(initial=-1) < room
        for k, table in enumerate(schedule.cells):
            ranks = np.arange(len(table.order))
            assert len(np.unique(placed.ranks[k])) == len(ranks)
            assert placed.ranks[k].max(initial=-1) < rooms.sizes[k]
            for number, span in enumerate(table.operands):
                before = placed.rows[span.arena][_reads(schedule, k, number, ranks)]
                np.testing.assert_array_equal(_reads(full, k, number, placed.ranks[k]), before)
            for output, arena in enumerate(cells[k].outputs):
                written, shared = full.cells[k].outputs[output], full.cells[k].copies is not None
                spots = np.arange(len(table.outputs[output])) if shared else placed.ranks[k]
                np.testing.assert_array_equal(written[spots], placed.rows[arena][table.outputs[output]])
        for arena, at in zeros:
            listed = ints[at + 1 : at + 1 + ints[at]]
            assert set(placed.rows[arena][schedule.zero_rows[arena]]) <= set(listed)


@pytest.mark.parametrize("model", MODELS)
def test_a_level_that_no_step_takes_begins_where_it_does_in_all_batches(model: str) -> None:
    """As graphs hold its address."""
    make, batches = MODELS[model]
    program = fb.compile(make(), "numpy")
    cells = program.model.signatures
    shapes = [shape_of(fb.program.schedule(program, batch).schedule, cells) for batch in batches]
    rooms = Rooms(_roomy(max(shapes, key=lambda shape: len(shape.items)), shapes), cells)
    for k, table in enumerate(rooms.full.cells):
        for s, bounds in enumerate(table.segments):
            ranks, elements = (rooms.totals[k][axis] - len(rooms.levels) for axis in (0, 1 + s))
            for rank, element in zip(_levels(rooms, ranks), _levels(rooms, elements), strict=True):
                assert bounds[rank] == element


def _levels(rooms: Rooms, axis: int) -> list[int]:
    """Return where the levels of an axis begin."""
    first, last, _, _ = rooms.axes[axis]
    return [begin for begin, _ in rooms.levels[first:last]]


def _places(rooms: Rooms, cells: Sequence[CellSignature], widths: Sequence[int]) -> tuple[RoomPlaces, int]:
    """Return places for all that a batch in a class may write, and the end of the numbers of 32 bits.

    Args:
        rooms: the class.
        cells: of the model.
        widths: per cell, the ids of a call.
    """
    index, end = rooming.index_places(rooms, cells)
    sizes, levels = [0], len(rooms.levels)

    def take(count: int) -> int:
        nonlocal end
        end += count
        return end - count

    def plan(terms: int) -> int:
        sizes.append(terms)
        return take(2 + 3 * terms)

    maps = {k: take(starts[-1] - starts[0]) for k, starts in enumerate(rooms.starts)}
    plans = []
    for k, table in enumerate(rooms.full.cells):
        for i, span in enumerate(table.operands):
            if span.rows is not None:
                axis = rooms.totals[k][0 if span.sequence is None else 1 + span.sequence] - levels
                width, at = span.width if span.sequence is None else 1, index["rows", k, i]
                plans.append((plan(len(span.rows)), at, width, -1, axis))
                for level in range(*rooms.axes[axis][:2]):
                    begin, room = rooms.levels[level]
                    plans.append((plan(room * width), at + begin * width, width, level, axis))
    sums = [
        (plan(rooms.sizes[k] * width), rooms.totals[k][0] - levels, width) for k, width in enumerate(widths)
    ]
    zeros = [(arena, take(1 + rows)) for arena, rows in enumerate(rooms.full.arena_rows)]
    counts = [(number, number) for number in range(levels + len(rooms.axes))]
    return RoomPlaces(index, maps, counts, plans, sums, zeros, max(sizes)), end


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=TRACES)
@given(
    settings_of(),
    st.sampled_from(list(LAYOUTS.values())),
    st.sampled_from(list(SHARES.values())),
    st.integers(0, 1000),
)
def test_sizes_classes_and_numbers_are_the_oracles(
    way: str, setting: Setting, layout: Any, share: Any, seed: int
) -> None:
    """Of batches that classes are learnt from, and of others, each of which fits or does not."""
    cells, arenas, rng = setting.signatures, setting.cells.arenas, np.random.default_rng(seed)
    measures = Measures(cells, arenas)
    with planned_by(way):
        batches = [setting.traces[:1], setting.traces[1:], setting.traces, setting.traces * 2]
        schedules = [
            build(merge(traces, cells), cells, setting.policy, layout, arenas, share, COMPILED)
            for traces in batches
        ]
        shapes = []
        for schedule in schedules:
            right = rooming.shape_of(schedule, cells)
            for version in (schedule, replace(schedule)):  # flat no more
                shape = measures.shape_of(measures.sizes(flat_of(version)))
                assert shape._replace(runs=tuple(sorted(shape.runs))) == right._replace(
                    runs=tuple(sorted(right.runs))
                )
            assert measures.shape_of(measures.sizes_of(shape)) == shape
            shapes.append(shape)
        learnt = [shape for shape in shapes if rng.integers(2)]
        classes = sorted(learn(learnt, cells), key=lambda rooms: len(rooms.shape.items))
        for schedule, shape in zip(schedules, shapes, strict=True):
            sizes = measures.sizes(flat_of(schedule))
            number = measures.find(measures.classes(classes), sizes)
            fits = [rooming.slots_of(rooms.shape, shape) for rooms in classes]
            assert number == next((n for n, slots in enumerate(fits) if slots is not None), -1)
            if number >= 0 and shape.items:
                assert sizes[-len(shape.items) :].tolist() == fits[number]
                taken = dict(zip(fits[number] or [], shape.items, strict=True))
                _check(measures, classes[number], schedule, sizes, taken, rng)


def _check(
    measures: Measures, rooms: Rooms, schedule: Schedule, sizes: Index, taken: Any, rng: np.random.Generator
) -> None:
    """Check the numbers of a batch in a class, see `rooming.place` and `rooming.fill`."""
    cells = measures.cells
    widths = [int(rng.integers(1, 3)) for _ in cells]
    places, end = _places(rooms, cells, widths)
    ids = {k: rng.integers(0, 5, (len(schedule.orders[k]), width)) for k, width in enumerate(widths)}
    numbers, ints = np.zeros(len(places.counts), np.int64), np.zeros(end, np.int32)
    expected_numbers, expected = numbers.copy(), ints.copy()
    index = {name: expected[at:] for name, at in places.index_arrays.items()}
    right = rooming.place(rooms, cells, schedule, taken, index)
    rooming.fill(places, rooms, right, ids, expected_numbers, expected)
    every = np.concatenate([rows.reshape(-1) for rows in ids.values()])
    placed = RoomWriter(measures, rooms, places).write(flat_of(schedule), sizes, every, numbers, ints)
    np.testing.assert_array_equal(numbers, expected_numbers)
    np.testing.assert_array_equal(ints, expected)
    for ranks, axes in zip(placed.ranks, right.axes, strict=True):
        np.testing.assert_array_equal(ranks, axes[0])
    for rows, right_rows in zip(placed.rows, right.rows, strict=True):
        np.testing.assert_array_equal(rows, right_rows)


def test_levels_begin_behind_the_rooms_of_those_before() -> None:
    program = fb.compile(_chain(), "numpy")
    cells = program.model.signatures
    shape = shape_of(fb.program.schedule(program, [[1, 2, 3], [4]]).schedule, cells)
    rooms = Rooms(_roomy(shape, [shape]), cells)
    for k, size in enumerate(rooms.sizes):
        levels = [step for step in rooms.full.steps if step.cell == k and is_level(step.stages)]
        assert [step.start for step in levels] == [0, *(step.stop for step in levels[:-1])]
        assert size == (levels[-1].stop if levels else 0)


def test_an_operand_that_reads_what_another_one_does_is_no_slice() -> None:
    """Else it would be read at the places of its own cell."""
    x = fb.Map(fb.Vector(2)) >> fb.RNN(fb.GRUCell(2)) >> fb.GetItem(0)
    twice = x >> fb.Map(fb.AllOf(fb.Function(lambda h: fb.ops.sum(h) * 2.0) >> fb.Loss(), fb.Identity()))
    program = fb.compile(twice, "numpy")
    shape = shape_of(
        fb.program.schedule(program, [np.ones((3, 2)), np.ones((2, 2))]).schedule, program.model.signatures
    )
    assert shape.first <= shape.slices
    assert all(rows >= 0 for rows in shape.unsliced)
