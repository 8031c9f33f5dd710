"""Executions agree with the oracle, whatever the batch, and leave as little as they can."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from foldbatch.engines.executor import Execution
from foldbatch.engines.workspace import Workspace
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.engines.batch import Batch, schedule_batch
from foldbatch.engines.reference import Reference
from foldbatch.params import Gradient, Parameter, SparseRows
from foldbatch.scheduler.layout import LAYOUTS, Layout
from foldbatch.scheduler.policies import POLICIES
from tests.runtime.random_cells import Runnable, runnables

layouts: st.SearchStrategy[Layout] = st.sampled_from(list(LAYOUTS.values()))


def _batch(runnable: Runnable, layout: Layout) -> Batch:
    setting = runnable.setting
    return schedule_batch(setting.traces, runnable.signatures, setting.policy, layout, setting.cells.arenas)


def _execution(runnable: Runnable, batch: Batch, workspace: Workspace, *, training: bool) -> Execution:
    return Execution(
        runnable.cells, runnable.signatures, runnable.arenas, workspace, batch.schedule, batch.feeds, training
    )


def _dense(gradient: Gradient) -> Any:
    return gradient.dense() if isinstance(gradient, SparseRows) else gradient


def _check(runnable: Runnable, batch: Batch, workspace: Workspace, *, training: bool) -> None:
    """Check values, losses, metrics and gradients of one run against the oracle's."""
    if not batch.merged.trace.size:
        return
    oracle = Reference(runnable.cells, runnable.signatures, batch.merged.trace)
    oracle.forward()
    execution = _execution(runnable, batch, workspace, training=training)
    execution.forward()
    for k, cell in enumerate(runnable.signatures):
        for base in batch.merged.trace.calls[k][:, 0].tolist():
            for j, arena in enumerate(cell.outputs):
                found = execution.values(arena)[batch.schedule.row_of[base + j]]
                np.testing.assert_allclose(found, oracle.values[base + j], rtol=1e-10, atol=1e-12)
    loss = sum(float(values.sum()) for values in execution.losses.values())
    assert np.isclose(loss, oracle.losses, rtol=1e-10)
    assert set(execution.metrics) == set(oracle.metrics)
    for (k, i), values in execution.metrics.items():
        expected = np.array(oracle.metrics[k, i])[batch.schedule.cells[k].order]
        np.testing.assert_allclose(values, expected, rtol=1e-10, atol=1e-12)
    if training:
        expected_gradients = oracle.backward()
        gradients = execution.backward()
        assert set(gradients) == set(expected_gradients)
        for parameter, gradient in gradients.items():
            assert parameter.trainable
            np.testing.assert_allclose(_dense(gradient), expected_gradients[parameter], rtol=1e-9, atol=1e-10)


@given(runnables(), layouts)
@settings(max_examples=80)
def test_any_batch_gives_what_the_oracle_gives(runnable: Runnable, layout: Layout) -> None:
    """Values, losses, metrics, gradients; in buffers that were full of NaN, and again in used ones."""
    batch = _batch(runnable, layout)
    workspace = Workspace(poisoned=True)
    _check(runnable, batch, workspace, training=True)
    _check(runnable, batch, workspace, training=False)
    workspace.poison()
    _check(runnable, batch, workspace, training=True)


@given(runnables(), layouts)
@settings(max_examples=30)
def test_batches_of_other_sizes_do_not_disturb_each_other(runnable: Runnable, layout: Layout) -> None:
    """A workspace serves one batch after the other, of whatever size."""
    workspace = Workspace()
    traces = runnable.setting.traces
    for part in (traces[:1], traces, traces[1:], traces[:1]):
        batch = schedule_batch(
            part, runnable.signatures, runnable.setting.policy, layout, runnable.setting.cells.arenas
        )
        _check(runnable, batch, workspace, training=True)


@given(runnables(), layouts)
@settings(max_examples=30)
def test_a_batch_twice_gives_the_same_bits(runnable: Runnable, layout: Layout) -> None:
    """Sums have a fixed order, also where rows are shared."""
    batch = _batch(runnable, layout)
    found = []
    for workspace in (Workspace(), Workspace()):
        execution = _execution(runnable, batch, workspace, training=True)
        execution.forward()
        gradients = execution.backward()
        found.append({p.name: _dense(g).tobytes() for p, g in gradients.items()})
        found[-1] |= {str(key): values.tobytes() for key, values in execution.losses.items()}
    assert found[0] == found[1]


def test_an_empty_batch_runs_no_kernel() -> None:
    """And yields nothing."""
    lowered = fb.compile(fb.Map(fb.Scalar() >> fb.Function(fb.ops.tanh))).lowered
    batch = schedule_batch(
        [], lowered.signatures, POLICIES["by_component"], LAYOUTS["consumer"], len(lowered.arenas)
    )
    execution = Execution(
        lowered.cells, lowered.signatures, lowered.arenas, Workspace(), batch.schedule, batch.feeds, True
    )
    execution.forward()
    assert execution.backward() == {}
    assert (execution.kernel_calls, execution.losses, execution.metrics) == (0, {}, {})


class Counting(Execution):
    """Counts, for each parameter, the kernels that yield its gradient."""

    counts: Counter[str]

    def _run(self, kernel: Any, step: Any) -> None:
        self.counts.update(key.name for kind, key in kernel.results if kind == "gradient")
        super()._run(kernel, step)


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
    return fb.compile(model, policy=policy, threads=1), example


@pytest.mark.parametrize(("policy", "kernels"), [("by_component", 1), ("by_depth", 20)])
def test_each_weight_has_one_gradient_kernel_a_batch(policy: str, kernels: int) -> None:
    """By component, however many levels there are; whatever the number, one array holds the sum."""
    program, example = _chain(policy)
    traces = program._trace_all([example, example])
    lowered = program.lowered
    batch = schedule_batch(
        traces, lowered.signatures, POLICIES[policy], LAYOUTS["consumer"], len(lowered.arenas)
    )
    execution = Counting(
        lowered.cells, lowered.signatures, lowered.arenas, Workspace(), batch.schedule, batch.feeds, True
    )
    execution.counts = Counter()
    execution.forward()
    execution.backward()
    assert execution.counts["bias"] == kernels
    for parts in execution.gradients.values():
        dense = [part for part in parts if not isinstance(part, SparseRows)]
        assert len(dense) <= 1


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
    program = fb.compile(fb.Vector(2) >> fb.Function(lambda x: x * weight))
    assert program.run([[1, 1]])[0].tolist() == [1, 2]
    weight.assign([5.0, 6.0])
    assert program.run([[1, 1]])[0].tolist() == [5, 6]
