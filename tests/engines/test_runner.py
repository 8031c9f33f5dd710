"""Engines: traces in, results out, for one thread at a time; parts of a batch keep their order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines import threads
from foldbatch.engines.runner import Runner
from foldbatch.errors import UnknownNameError


def model() -> fb.Block:
    layer = fb.Linear(2, name="layer")
    total = fb.Function(lambda x: ops.sum(layer(x) * layer(x)))
    return fb.Map(fb.Vector(3, "float64") >> total >> fb.AllOf(fb.Loss(), fb.Metric("seen"))) >> fb.Void()


DATA = np.random.default_rng(0).normal(size=(6, 2, 3)).tolist()


def test_the_reference_reads_the_graphs_of_another_backend():
    assert backend_of("reference") is backend_of("numpy")
    with pytest.raises(UnknownNameError, match="backend: expected one of auto"):
        backend_of("abacus")


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
