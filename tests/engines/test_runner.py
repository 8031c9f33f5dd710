"""Runners: traces in, results out, for one thread at a time; parts of a batch keep their order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines import threads
from foldbatch.engines.results import Metrics
from foldbatch.engines.runner import Runner
from foldbatch.errors import UnknownNameError
from foldbatch.model.sources import with_gradients


def model() -> fb.Block:
    layer = fb.Linear(2, name="layer")
    total = fb.Function(lambda x: ops.sum(layer(x) * layer(x)))
    return fb.Map(fb.Vector(3, "float64") >> total >> fb.AllOf(fb.Loss(), fb.Metric("seen"))) >> fb.Void()


DATA = np.random.default_rng(0).normal(size=(6, 2, 3)).tolist()


def test_the_engine_is_the_one_that_options_name():
    program = fb.compile(model(), "numpy")
    for name in ("numpy", "reference"):
        runner = Runner(program.model, replace(program.options, backend=name), 0)
        assert runner.engine.name == name
    with pytest.raises(UnknownNameError, match="backend: expected one of auto"):
        Runner(program.model, replace(program.options, backend="abacus"), 0)


def test_a_planned_batch_is_made_ready_once_for_each_phase():
    program = fb.compile(model(), "numpy", threads=1)
    runner = program._runner
    parts = runner.plan(program._trace_all(DATA))
    made = []
    ready = runner.engine.ready

    def noted(batch, *, training):
        made.append(training)
        return ready(batch, training=training)

    with mock.patch.object(runner.engine, "ready", noted):
        for _ in range(3):
            runner.value_and_grad(parts, 0)
            runner.run(parts)
    assert sorted(made) == [False, True]


def test_no_examples_have_results_of_no_example():
    runner = fb.compile(model(), "numpy")._runner
    found = runner.run([])
    assert (list(found), found.loss) == ([], 0.0)
    assert found.metrics["seen"].values.shape == (0,)
    report = fb.compile(model(), "numpy").describe([])
    assert report.examples == 0


def test_cotangents_of_results_flow_back_to_parameters_and_data():
    """Those of one example, or several, in parts that run side by side."""
    layer = fb.Linear(2, name="layer")
    program = fb.compile(fb.Map(fb.Vector(3, "float64") >> layer), "numpy", threads=1)
    model = with_gradients(program.model, losses=False, results=True, inputs=True)
    traces = program._trace_all(DATA)
    rng = np.random.default_rng(1)
    seeds = [[(int(n), rng.normal(size=2)) for n in trace.calls[0][:, 0]] for trace in traces]
    visits = []
    for count in (1, 3):
        runner = Runner(model, replace(program.options, threads=count), 0)
        with mock.patch.multiple(threads, CALLS_PER_PART=1, MULTIPLICATIONS_PER_PART=1):
            results, gradients = runner.vjp(traces, 0, seeds, lambda seen: visits.append(seen) or Metrics({}))
        g = np.array([value for pairs in seeds for _, value in pairs])
        x = np.array(DATA).reshape(-1, 3)
        named = {parameter.name: gradient for parameter, gradient in gradients.items()}
        np.testing.assert_allclose(named["weight"], x.T @ g)
        np.testing.assert_allclose(named["bias"], g.sum(axis=0))
        assert results.loss == 0.0
        found = np.concatenate([seen.gradients[0, 0] for seen in visits[-count:]])
        np.testing.assert_allclose(found, g @ program.params["layer.weight"].T)


def test_parts_run_in_threads_come_together_in_order():
    program = fb.compile(model(), threads=1)
    traces = program._trace_all(DATA)
    whole = Runner(program.model, program.options, 0)
    cut = Runner(program.model, replace(program.options, threads=3), 0)
    with mock.patch.multiple(threads, CALLS_PER_PART=1, MULTIPLICATIONS_PER_PART=1):
        assert len(threads.split(traces, 3)) == 3
        found, right = cut.run(traces), whole.run(traces)
        np.testing.assert_allclose(found.metrics["seen"].values, right.metrics["seen"].values)
        assert found.metrics["seen"].examples.tolist() == [i for i in range(6) for _ in range(2)]
        (loss, gradients), (same, expected) = cut.value_and_grad(traces, 0), whole.value_and_grad(traces, 0)
        assert loss == pytest.approx(same)
        for parameter, gradient in expected.items():
            np.testing.assert_allclose(gradients[parameter], gradient)


def test_several_threads_may_ask_one_engine():
    program = fb.compile(model(), threads=2)
    traces = program._trace_all(DATA)
    engine = Runner(program.model, program.options, 0)
    right = engine.value_and_grad(traces, 0)[0]
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: engine.value_and_grad(traces, 0)[0], range(20))) == {right}


def test_every_trainable_parameter_has_a_gradient_even_of_no_trace():
    program = fb.compile(model())
    loss, gradients = Runner(program.model, program.options, 0).value_and_grad([], 0)
    assert loss == 0.0
    assert {p.name: g.shape for p, g in gradients.items()} == {"weight": (3, 2), "bias": (2,)}


def test_a_report_waits_for_each_pass_before_it_reads_the_clock(monkeypatch):
    program, waits = fb.compile(fb.Map(fb.Scalar()) >> fb.Sum() >> fb.Loss(), "numpy"), []
    monkeypatch.setattr(program.engine, "wait", lambda: waits.append(len(waits)), raising=False)
    program.describe([[1, 2]], compare=False)
    assert waits == [0, 1]
