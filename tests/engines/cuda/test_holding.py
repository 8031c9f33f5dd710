import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.cuda.held_tables import held_tables
from foldbatch.errors import BackendError


def _holding():
    cell = fb.Function(lambda state, x: fb.ops.tanh(x + state))
    chain = fb.Map(fb.Vector(3)) >> fb.Fold(cell, fb.Zeros(3)) >> fb.Function(fb.ops.sum) >> fb.Loss()
    program = fb.compile(chain, "cuda-on-cpu", layout="producer", share=None)
    examples = [np.ones((n, 3), "float32") * n for n in (2, 1, 4)]
    batch = program.schedule(examples)
    return program.engine, program.engine.hold(batch), batch


def test_calls_are_counted_by_example_and_slot():
    _, holding, batch = _holding()
    assert holding.counts.sum() == batch.merged.trace.size
    assert holding.counts.shape == (3, len(holding.slots))
    assert holding.nbytes > 0
    for cell in holding.cells:
        assert cell.starts[-1] == len(cell.slots) == len(cell.numbers) == len(cell.rows)


def test_sizes_are_those_of_the_schedule_of_the_host():
    engine, holding, batch = _holding()
    phase = engine.training
    held = held_tables(holding, phase.bound, phase.kernels, np.arange(3))
    assert [(s.cell, s.stages, s.start, s.stop) for s in held.schedule.steps] == [
        tuple(s) for s in batch.schedule.steps
    ]
    ready = engine.ready(batch, training=True)
    np.testing.assert_array_equal(held.tables.forward.bounds, ready.tables.forward.bounds)
    np.testing.assert_array_equal(held.tables.forward.heights, ready.tables.forward.heights)
    assert len(held.tables.forward.index) == len(ready.tables.forward.index)
    for mine, table in zip(held.schedule.cells, batch.schedule.cells, strict=True):
        np.testing.assert_array_equal(mine.examples, table.examples)


def test_a_value_that_is_read_on_several_levels_and_added_to_by_one_launch_is_refused():
    items = fb.GetItem(0) >> fb.Map(fb.Vector(3))
    context = fb.GetItem(1) >> fb.Vector(3) >> fb.Linear(3)
    joined = fb.AllOf(fb.GetItem(0), fb.GetItem(1) >> fb.Concat()) >> fb.Concat() >> fb.Linear(3)
    fold = fb.AllOf(items, context >> fb.Broadcast()) >> fb.Zip() >> fb.Fold(joined, fb.Zeros(3))
    block = fold >> fb.Function(fb.ops.sum) >> fb.Loss()
    program = fb.compile(block, "cuda-on-cpu", layout="producer", share=None)
    example = (np.ones((3, 3), "float32"), np.ones(3, "float32"))
    with pytest.raises(BackendError, match="hold: expected values that are read once by a cell"):
        program.engine.hold(program.schedule([example]))
