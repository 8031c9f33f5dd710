"""What a batch's packed table holds, and where."""

from __future__ import annotations

from typing import Any

import numpy as np

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.engine import CudaEngine, Ready
from foldbatch.engines.cuda.packing import SUMMED
from foldbatch.engines.cuda.texts.kernel_text import ADDRESSES_AT, HEADER, STATUS_AT
from foldbatch.engines.launch import FIRST, INDEX, WIDTH, binding
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.emulator import Emulator
from tests.engines.cuda.trees import TREES, program

pytestmark = needs_compiler


def ready(examples: Any = TREES, *, training: bool = True) -> Ready:
    made = program()
    found: Ready = made.engine.ready(fb.program.schedule(made, examples), training=training)
    return found


def test_the_head_tells_where_the_rest_lies() -> None:
    batch = ready()
    numbers, forward = batch.packed.numbers, batch.tables.forward
    buffers = len(batch.phase.bound.types)
    assert numbers[ADDRESSES_AT] == HEADER
    first = min(batch.packed.forward.launches, *batch.packed.forward.levels)
    assert first == HEADER + buffers + SUMMED * len(batch.packed.sums)
    assert batch.packed.ints.dtype == np.int32
    np.testing.assert_array_equal(batch.packed.ints[: len(forward.index)], forward.index)
    for direction, steps in zip((batch.packed.forward, batch.packed.backward), batch.steps, strict=True):
        assert direction is not None
        assert steps
        levels = [[start, stop - start] for start, stop in direction.table.bounds.tolist()]
        for step in steps:
            if step.task.name:
                launch, level, *_ = step.arguments
                assert numbers[launch : launch + len(step.row)].tolist() == list(step.row)
                assert numbers[level : level + 2].tolist() in levels


def test_addresses_are_filled_in_last() -> None:
    packed = ready().packed
    buffers = packed.forward.launches - HEADER
    target = np.full(len(packed.numbers), -7, np.int64)
    packed.filled(target, np.arange(100, 98 + buffers), (98 + buffers, 99 + buffers), 99)
    assert target[STATUS_AT] == 99
    assert target[HEADER : HEADER + buffers].tolist() == list(range(100, 100 + buffers))
    np.testing.assert_array_equal(target[HEADER + buffers :], packed.numbers[HEADER + buffers :])


def test_a_plan_adds_each_row_of_a_level_once() -> None:
    """Where rows do not follow each other, as where two read a sequence in opposite directions."""
    there, back = (fb.RNN(fb.LSTMCell(2, name=name)) for name in ("there", "back"))
    loss = fb.Function(lambda h: ops.sum(h)) >> fb.Loss()
    both = fb.AllOf(there >> fb.GetItem(0), fb.Slice(step=-1) >> back >> fb.GetItem(0))
    block = fb.Map(fb.Vector(2) >> fb.Linear(2)) >> both >> fb.Zip() >> fb.Map(fb.Concat() >> loss)
    made = fb.compile(block, "numpy")
    engine = CudaEngine("cuda-on-cpu", made.model, Device(Emulator()))
    batch = engine.ready(fb.program.schedule(made, [[[1, 2]] * 3, [], [[3, 4]] * 2]), training=True)
    backward = batch.packed.backward
    assert backward is not None
    planned = [step for step in batch.steps[1] if step.task.planned >= 0]
    assert planned
    numbers = batch.packed.numbers
    for step in planned:
        _, level, plan = step.arguments
        fields = binding(step.row, step.task.planned)
        assert fields[FIRST] < 0
        low, count = numbers[level : level + 2]
        high = low + count
        segments = batch.phase.kernels[step.row[0]].routine.segments
        if step.task.axis in segments:
            at = binding(step.row, segments[step.task.axis])[INDEX]
            low, high = backward.table.index[at + low], backward.table.index[at + high]
        rows = backward.table.index[fields[INDEX] :][low * fields[WIDTH] : high * fields[WIDTH]]
        targets = sorted(set(rows.tolist()))
        ints = batch.packed.ints
        assert ints[plan : plan + 1 + len(targets)].tolist() == [len(targets), *targets]


def test_rows_of_tables_are_summed_by_ids_of_the_examples() -> None:
    ((place, rows),) = ready().packed.sums.values()
    assert rows.tolist() == [0, 1, 2]
    assert ready().packed.ints[place] == 3


def test_inference_has_no_backward_part() -> None:
    packed = ready(training=False).packed
    assert packed.backward is None
    assert (packed.sums, packed.zeros) == ({}, {})


def test_rows_of_cotangents_that_nobody_stores_are_set_to_zero() -> None:
    batch = ready()
    made = fb.program.schedule(program(), TREES).schedule.zero_rows
    for arena, (place, count) in batch.packed.zeros.items():
        assert batch.packed.ints[place : place + 1 + count].tolist() == [count, *made[arena]]


def test_a_batch_without_examples_is_packed() -> None:
    batch = ready([])
    assert len(batch.packed.forward.table.launches) == 0
    assert batch.steps == ((), ())
