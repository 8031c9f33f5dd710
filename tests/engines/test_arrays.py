"""Runs of engines of arrays agree with the oracle, whatever the batch, and leave as little as they can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.engines import numpy as numpy_engine
from foldbatch.engines.arrays import ArrayEngine, ArrayRun
from foldbatch.engines.batch import ScheduledBatch, schedule_batch
from foldbatch.engines.ranges import OutOfRangeError
from foldbatch.engines.reference import Evaluation
from foldbatch.params.parameters import Gradient, Parameter, SparseRows
from foldbatch.scheduler.layout import LAYOUTS, Layout
from foldbatch.scheduler.policies import POLICIES
from tests.engines.random_cells import Runnable, runnables

layouts: st.SearchStrategy[Layout] = st.sampled_from(list(LAYOUTS.values()))


def _run(engine: ArrayEngine, batch: ScheduledBatch, memory: Any, *, training: bool = True) -> ArrayRun:
    return engine.forward(engine.ready(batch, training=training), batch.feeds, memory)


def _dense(gradient: Gradient) -> Any:
    return gradient.dense() if isinstance(gradient, SparseRows) else gradient


def _check(engine: ArrayEngine, batch: ScheduledBatch, memory: Any, *, training: bool) -> None:
    """Check values, losses, metrics and gradients of one run against the oracle's."""
    model, trace = engine.model, batch.merged.trace
    oracle = Evaluation(model.cells, model.signatures, trace)
    oracle.forward()
    run = _run(engine, batch, memory, training=training)
    numbers = sorted(oracle.values)
    for number, found in zip(numbers, run.fetch(numbers), strict=True):
        np.testing.assert_allclose(found, oracle.values[number], rtol=1e-10, atol=1e-12)
    for ranked, by_call in ((run.losses, oracle.losses), (run.metrics, oracle.metrics)):
        assert {key for key, values in ranked.items() if len(values)} == set(by_call)
        for (k, i), values in by_call.items():
            expected = np.array(values)[batch.schedule.cells[k].order]
            np.testing.assert_allclose(ranked[k, i], expected, rtol=1e-10, atol=1e-12)
    if training:
        expected_gradients = oracle.backward()
        gradients = run.backward()
        assert set(gradients) == set(expected_gradients)
        for parameter, gradient in gradients.items():
            assert parameter.trainable
            np.testing.assert_allclose(_dense(gradient), expected_gradients[parameter], rtol=1e-9, atol=1e-10)


@given(runnables(), layouts)
@settings(max_examples=8)
def test_batches_of_other_sizes_do_not_disturb_each_other(runnable: Runnable, layout: Layout) -> None:
    """Memory serves one batch after the other, of whatever size."""
    engine = numpy_engine.load(runnable.model)
    memory = engine.memory()
    for part in (slice(1), slice(None), slice(1, None), slice(1)):
        _check(engine, runnable.batch(layout, part=part), memory, training=True)


@given(runnables(), layouts)
@settings(max_examples=8)
def test_a_batch_twice_gives_the_same_bits(runnable: Runnable, layout: Layout) -> None:
    """Sums have a fixed order, also where rows are shared."""
    batch = runnable.batch(layout)
    engine = numpy_engine.load(runnable.model)
    found = []
    for memory in (engine.memory(), engine.memory()):
        run = _run(engine, batch, memory)
        gradients = run.backward()
        found.append({p.name: _dense(g).tobytes() for p, g in gradients.items()})
        found[-1] |= {str(key): values.tobytes() for key, values in run.losses.items()}
    assert found[0] == found[1]


def test_an_empty_batch_runs_no_kernel() -> None:
    """And yields nothing."""
    model = fb.compile(fb.Map(fb.Scalar() >> fb.Function(fb.ops.tanh)), "numpy").model
    engine = numpy_engine.load(model)
    batch = schedule_batch(
        [], model.signatures, POLICIES["by_component"], LAYOUTS["consumer"], len(model.arenas)
    )
    run = _run(engine, batch, engine.memory())
    assert run.backward() == {}
    assert (run.launches, run.losses, run.metrics) == (0, {}, {})
    assert run.fetch([]) == []


def _chain(policy: str) -> tuple[fb.Program, Any]:
    """Return a program that folds a nested pair from the inside out, and a deep example."""
    chain = fb.ForwardDeclaration(output_type=[3, "float64"], name="chain")
    step = (
        fb.Record((fb.Scalar("int32") >> fb.Embedding(4, 3, dtype="float64"), chain()))
        >> fb.Concat()
        >> fb.Linear(3)
    )
    end = fb.Scalar("int32") >> fb.Embedding(4, 3, dtype="float64", name="end")
    chain.resolve_to(
        fb.OneOf(lambda x: isinstance(x, tuple), {True: step >> fb.Function(fb.ops.tanh), False: end})
    )
    model = chain() >> fb.Function(lambda h: fb.ops.sum(h * h)) >> fb.Loss()
    example: Any = 0
    for i in range(20):
        example = (i % 4, example)
    return fb.compile(model, "numpy", options={"policy": policy}, threads=1), example


@pytest.mark.parametrize(("policy", "launched"), [("by_component", 1), ("by_depth", 20)])
def test_each_weight_has_one_gradient_kernel_a_batch(policy: str, launched: int) -> None:
    """By component, however many levels there are; whatever the number, one array holds the sum."""
    program, example = _chain(policy)
    engine = numpy_engine.load(program.model)
    ready = engine.ready(fb.program.schedule(program, [example, example]), training=True)
    table, gradients = ready.tables.backward, ready.kernels.bound.gradients
    assert table is not None
    levels = [
        last - first
        for kernel, first, last in table.launches[:, :3].tolist()
        if any(parameter.name == "bias" for parameter in gradients[kernel])
    ]
    assert sum(levels) == launched
    found = engine.forward(ready, ready.batch.feeds, engine.memory()).backward()
    assert [isinstance(g, SparseRows) for p, g in found.items() if p.name == "bias"] == [False]


def test_kernels_are_made_when_they_are_first_needed() -> None:
    """Those that infer are not made for training, nor the other way round."""
    program, example = _chain("by_component")
    engine = numpy_engine.load(program.model)
    assert not {"training", "inference"} & vars(engine).keys()
    memory = engine.memory()
    _run(engine, fb.program.schedule(program, [example]), memory, training=False)
    assert {"training", "inference"} & vars(engine).keys() == {"inference"}
    for name in ("forward_step", "backward_step", "infer_forward_step"):
        assert f"def {name}(" in engine.source([0])


def test_an_id_out_of_range_is_reported_with_its_cell() -> None:
    """The rank is that in the cell, whatever level it ran in."""
    weight = np.zeros((4, 2), "float32")
    shifted = fb.Scalar("int32") >> fb.Function(lambda i: fb.ops.gather(weight, i + 1))
    program = fb.compile(fb.Map(shifted), "numpy")
    engine = numpy_engine.load(program.model)
    with pytest.raises(OutOfRangeError) as error:
        _run(engine, fb.program.schedule(program, [[0, 1], [2, 3]]), engine.memory())
    assert (error.value.cell, error.value.rank, error.value.id, error.value.size) == (0, 3, 4, 4)


def test_gradients_are_the_callers_own() -> None:
    """The next batch does not change them, nor do they share memory with each other."""
    program, example = _chain("by_component")
    _, first = program.value_and_grad([example])
    kept = {name: _dense(g).copy() for name, g in first.items()}
    program.value_and_grad([(1, (2, 3)), example])
    for name, gradient in first.items():
        np.testing.assert_array_equal(_dense(gradient), kept[name])


def test_parameters_are_read_when_a_kernel_runs() -> None:
    """Not when it is compiled."""
    weight = Parameter([2], [1.0, 2.0])
    program = fb.compile(fb.Vector(2) >> fb.Function(lambda x: x * weight), "numpy")
    assert program.run([[1, 1]])[0].tolist() == [1, 2]
    weight.assign([5.0, 6.0])
    assert program.run([[1, 1]])[0].tolist() == [5, 6]
