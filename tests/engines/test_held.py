"""Held batches: forward now, backward later, in memory of their own."""

import gc
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines import threads
from foldbatch.engines.runner import Runner
from tests.backends import BACKENDS
from tests.knobs import knobs


def program_of(backend, **options):
    word = fb.Scalar("int32") >> fb.Embedding(6, 3, "normal", name="words")
    return fb.compile(fb.Map(word) >> fb.Sum() >> fb.Linear(2, "tanh", name="out"), backend, **knobs(options))


EXAMPLES = [[1, 2, 3], [4], [1, 1], []]


def pool_of(program):
    wanted = {"losses": False, "results": True, "inputs": False, "training": True}
    return program._ready.derivatives.pool_of(**wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_batches_held_at_once_yield_what_vjp_does(backend):
    program = program_of(backend, threads=2)
    cotangents = [np.array([i, 1.0]) for i in range(len(EXAMPLES))]
    with mock.patch.multiple(threads, CALLS_PER_PART=1, MULTIPLICATIONS_PER_PART=1):
        pool = pool_of(program)
        first = pool.hold(program._trace_all(EXAMPLES), 0, results=True)
        second = pool.hold(program._trace_all(EXAMPLES[:2]), 0, results=True)
        for held, examples in ((second, EXAMPLES[:2]), (first, EXAMPLES), (first, EXAMPLES)):
            if held.memories is not None:
                np.testing.assert_allclose(held.values, program.run(examples), rtol=1e-5)
            found = held.backward(cotangents[: len(examples)])
            other = pool.hold(program._trace_all([[5], [5, 5], [0], [1]]), 0, results=True)  # in its memory
            expected = program.vjp(examples, cotangents[: len(examples)]).gradients
            for name, parameter in program.params.parameters.items():
                pair = [found.parameters[parameter], expected[name]]
                ours, theirs = (
                    np.asarray(g.dense() if isinstance(g, fb.params.SparseRows) else g) for g in pair
                )
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        assert other.memories is not None


def test_a_backward_pass_that_was_interrupted_can_be_repeated(monkeypatch):
    program = program_of("numpy")
    pool = pool_of(program)
    held = pool.hold(program._trace_all(EXAMPLES), 0, results=True)
    cotangents = [np.ones_like(value) for value in held.values]
    backward = Runner.backward

    def interrupted(self, parts, seeds, *, visited):
        backward(self, parts, seeds, visited=visited)
        raise KeyboardInterrupt

    monkeypatch.setattr(Runner, "backward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        held.backward(cotangents)
    assert held.memories is None  # what the forward pass left is spoiled
    monkeypatch.setattr(Runner, "backward", backward)
    expected = program.vjp(EXAMPLES, cotangents).gradients
    gradients = held.backward(cotangents).parameters
    for name, parameter in program.params.parameters.items():
        pair = [gradients[parameter], expected[name]]
        ours, theirs = (np.asarray(g.dense() if isinstance(g, fb.params.SparseRows) else g) for g in pair)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_memory_is_used_again_once_nobody_holds_it():
    program = program_of("numpy")
    pool, traces = pool_of(program), program._trace_all(EXAMPLES)
    held = pool.hold(traces, 0, results=True)
    memories = held.memories
    other = pool.hold(traces, 0, results=True)
    assert other.memories is not memories
    del held
    gc.collect()
    again = pool.hold(traces, 0, results=True)
    assert again.memories is memories
    again.backward([None] * len(EXAMPLES))
    assert again.memories is None
    assert pool.hold(traces, 0, training=False).memories is memories


def test_results_are_made_of_other_values():
    program = fb.compile(fb.Record({"a": fb.Scalar(), "b": fb.Map(fb.Scalar())}), "numpy")
    held = pool_of(program).hold(program._trace_all([{"a": 1, "b": [2, 3]}, {"a": 4, "b": []}]), 0)
    assert held.results("wxyz") == [("w", ["x", "y"]), ("z", [])]
