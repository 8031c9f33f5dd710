import numpy as np

import foldbatch as fb
from foldbatch.engines.cuda.control import (
    RECORD,
    calls_before,
    calls_of,
    calls_of_losses,
    calls_of_sums,
    calls_of_zeros,
    ops_of,
    records_of,
)


def _ready():
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 3))
    block = words >> fb.RNN(fb.GRUCell(40)) >> fb.GetItem(1) >> fb.Function(fb.ops.sum) >> fb.Loss()
    program = fb.compile(block, "cuda-on-cpu", policy="by_component", share=None)
    batch = program.schedule([[1, 2, 3], [4], [1, 5]])
    return program.engine.ready(batch, training=True), batch


def test_every_step_and_all_around_is_a_call():
    ready, batch = _ready()
    bound, packed = ready.phase.bound, ready.packed
    ops = ops_of(ready.phase.kernels)
    assert len({op.name for op in ops.ops}) == len(ops.ops)
    forward, backward = calls_of(ops, packed.forward.steps), calls_of(ops, packed.backward.steps)
    assert len(forward) == len(packed.forward.steps)
    assert any(call.step.task.multiplied is not None for call in backward)
    losses = list(calls_of_losses(ops, bound, batch.schedule))
    zeros, sums = list(calls_of_zeros(ops, bound, packed)), list(calls_of_sums(ops, bound, packed))
    before = list(calls_before(ops, bound, ready.tables, batch.schedule))
    assert (len(losses), len(sums)) == (1, 2)
    calls = [*before, *forward, *losses, *zeros, *backward, *sums]
    records = records_of(calls)
    assert records.shape == (len(calls), RECORD)
    assert all(len(call.arguments) == ops.ops[call.op].arguments for call in calls)
    assert np.array_equal(records[0, 1 : 1 + len(calls[0].arguments)], calls[0].arguments)
