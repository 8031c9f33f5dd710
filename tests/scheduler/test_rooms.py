"""Rooms: every batch of a class has its levels at the same ranks and rows, and reads what it read before."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.scheduler.rooms import Item, Rooms, Shape, is_level, shape_of
from foldbatch.scheduler.schedule import Schedule
from tests.engines.cuda import trees

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


def _index(full: Schedule) -> dict[tuple[Hashable, ...], Any]:
    """Return the index arrays of a schedule by their names."""
    index: dict[tuple[Hashable, ...], Any] = {}
    for k, table in enumerate(full.cells):
        index |= {("rows", k, i): span.rows for i, span in enumerate(table.operands)}
        index |= {("output", k, j): rows for j, rows in enumerate(table.outputs)}
        index |= {("segments", k, s): bounds for s, bounds in enumerate(table.segments)}
        index["copies", k] = table.copies
    return index


@pytest.mark.parametrize("model", MODELS)
def test_a_batch_reads_and_writes_what_it_did_at_places_of_the_class(model: str) -> None:
    make, batches = MODELS[model]
    program = fb.compile(make(), "numpy")
    cells = program.model.signatures
    schedules = [fb.program.schedule(program, batch).schedule for batch in batches]
    shapes = [shape_of(schedule, cells) for schedule in schedules]
    room = _roomy(max(shapes, key=lambda shape: len(shape.items)), shapes)
    for schedule, shape in zip(schedules, shapes, strict=True):
        rooms, full = Rooms(room, cells), Rooms(room, cells).full
        kinds = [(step.cell, step.stages) for step in rooms.full.steps]
        slots, at = [], 0
        for step in schedule.steps:
            at = kinds.index((step.cell, step.stages), at)
            slots.append(at)
            at += 1
        placed = rooms.place(schedule, dict(zip(slots, shape.items, strict=True)), _index(full))
        taken = dict(zip(slots, schedule.steps, strict=True))
        for slot, step in enumerate(full.steps):
            _, _, start, stop = taken.get(slot, step._replace(start=0, stop=0))
            sizes = [part[stop] - part[start] for part in schedule.cells[step.cell].segments]
            assert placed.counts[rooms.counted[slot]].tolist() == [stop - start, *sizes]
        for rows, own in zip(placed.rows, full.arena_rows, strict=True):
            assert len(np.unique(rows)) == len(rows)
            assert rows.max(initial=-1) < own
        for k, table in enumerate(schedule.cells):
            ranks, places = np.arange(len(table.order)), placed.places[slice(*rooms.starts[k][:2])]
            assert sorted(places) == list(range(rooms.sizes[k]))
            for number, span in enumerate(table.operands):
                before = placed.rows[span.arena][_reads(schedule, k, number, ranks)]
                np.testing.assert_array_equal(_reads(full, k, number, placed.ranks[k]), before)
            for output, arena in enumerate(cells[k].outputs):
                found, shared = full.cells[k].outputs[output], full.cells[k].copies is not None
                spots = np.arange(len(table.outputs[output])) if shared else placed.ranks[k]
                np.testing.assert_array_equal(found[spots], placed.rows[arena][table.outputs[output]])
        for k, _, start, _ in full.steps:  # taken or not, as graphs hold its address
            own = zip(full.cells[k].segments, rooms.full.cells[k].segments, strict=True)
            assert all(segments[start] == room[start] for segments, room in own)
        for arena, rows in enumerate(placed.zero_rows):
            assert set(placed.rows[arena][schedule.zero_rows[arena]]) <= set(rows)


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
