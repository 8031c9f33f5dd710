"""Batches that were planned, or are held between two passes."""

import gc
import pickle
import threading
from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines import threads
from foldbatch.engines.runner import Runner
from foldbatch.params.parameters import dense
from tests.backends import BACKENDS
from tests.knobs import knobs

EXAMPLES: list[Any] = [3, (1, 2), ((1, 1), (2, (0, 6))), ((3, 4), 5), 1, (2, (2, 2))]


def model() -> fb.Block:
    """Nested pairs of ints, with a loss, a labelled metric, a table and dropout."""
    tree = fb.ForwardDeclaration(output_type=[3, "float64"], name="tree")
    leaf = fb.Scalar("int32") >> fb.Embedding(7, 3, dtype="float64", name="words")
    pair = fb.Record((tree(), tree())) >> fb.Concat() >> fb.Linear(3, "tanh", name="join") >> fb.Dropout(0.8)
    square = fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss()
    state = fb.OneOf(lambda node: isinstance(node, tuple), {False: leaf, True: pair})
    metric = fb.AllOf(fb.GetItem(0), fb.GetItem(1) >> fb.InputTransform(str)) >> fb.Metric("seen")
    both = fb.AllOf(state, fb.Identity())
    tree.resolve_to(both >> fb.AllOf(fb.GetItem(0), fb.GetItem(0) >> square, metric) >> fb.GetItem(0))
    return tree()


def scheduled(planned: fb.program.Planned) -> bytes:
    return pickle.dumps([(part.first, part.traces, part.batch) for part in planned.parts])


def bits(program: fb.Program, batch: Any) -> Any:
    results = program.run(batch, losses=True, metrics=True)
    metric = results.metrics["seen"]
    loss, gradients = program.value_and_grad(batch, step=4)
    return (
        [result.tobytes() for result in results],
        results.loss,
        (metric.values.tobytes(), metric.examples.tolist(), metric.nodes.tolist(), metric.labels),
        loss,
        {name: dense(g).tobytes() for name, g in gradients.items()},
    )


OPTIONS: list[dict[str, Any]] = [
    {},
    {"threads": 3},
    {"batched": False},
    {"backend": "reference"},
    {"debug": True},
    {"policy": "by_depth", "layout": "producer"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_planned_batch_gives_the_same_bits_any_number_of_times(options):
    """With other batches and other parameters in between; nothing in it changes."""
    program = fb.compile(model(), **knobs({"backend": "numpy", **options}))
    with mock.patch.multiple(threads, CALLS_PER_PART=3, MULTIPLICATIONS_PER_PART=1):
        planned, other = program.plan(EXAMPLES), program.plan(EXAMPLES[::-1])
        if options.get("threads") == 3:
            assert len(planned.parts) == 3
        before = scheduled(planned)
        expected = bits(program, EXAMPLES)
        for _ in range(2):
            assert bits(program, planned) == expected
            bits(program, other)
        weight = program.params["join.weight"].copy()
        program.params["join.weight"] = weight * 2
        assert bits(program, planned) == bits(program, EXAMPLES) != expected
        program.params["join.weight"] = weight
        assert bits(program, planned) == expected
    assert scheduled(planned) == before


def test_running_a_planned_batch_does_not_schedule_again():
    program = fb.compile(model(), backend="numpy")
    planned = program.plan(EXAMPLES)
    with mock.patch("foldbatch.engines.planner.schedule_batch", side_effect=AssertionError):
        program.run(planned)
        program.value_and_grad(planned)
        with pytest.raises(AssertionError):
            program.run(EXAMPLES)


def test_a_planned_batch_stands_for_its_examples_everywhere(monkeypatch):
    monkeypatch.setattr(threads, "CALLS_PER_PART", 3)
    monkeypatch.setattr(threads, "MULTIPLICATIONS_PER_PART", 1)
    program = fb.compile(model(), backend="numpy", threads=2)
    planned = program.plan(x for x in EXAMPLES)
    assert (len(planned), repr(planned)) == (6, "Planned(6 examples in 2 parts)")
    tangents = {"join.weight": np.ones(program.params["join.weight"].shape)}
    assert program.jvp(planned, tangents, step=1) == program.jvp(EXAMPLES, tangents, step=1)
    assert program.describe(planned).calls == program.describe(EXAMPLES).calls
    assert [p.trace for p in program.prepare(planned)] == planned.traces
    again = program.plan(planned)
    assert [part is same for part, same in zip(again.parts, planned.parts, strict=True)] == [True] * 2
    assert bits(program, program.plan(program.prepare(EXAMPLES))) == bits(program, EXAMPLES)


def test_a_batch_may_be_planned_while_another_runs():
    program = fb.compile(model(), backend="numpy", threads=2)
    batches = [EXAMPLES[i:] + EXAMPLES[:i] for i in range(6)]
    expected = [bits(program, batch) for batch in batches]
    planned: list[list[fb.program.Planned]] = [[] for _ in range(2)]
    workers = [
        threading.Thread(target=lambda mine=mine: mine.extend(program.plan(b) for b in batches * 5))
        for mine in planned
    ]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        assert bits(program, batches[2]) == expected[2]
    for mine in planned:
        assert [bits(program, plan) for plan in mine] == expected * 5


def program_of(backend, **options):
    word = fb.Scalar("int32") >> fb.Embedding(6, 3, "normal", name="words")
    return fb.compile(fb.Map(word) >> fb.Sum() >> fb.Linear(2, "tanh", name="out"), backend, **knobs(options))


HELD = [[1, 2, 3], [4], [1, 1], []]


def pool_of(program):
    wanted = {"losses": False, "results": True, "inputs": False, "training": True}
    return program._ready.derivatives.pool_of(**wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_batches_held_at_once_yield_what_vjp_does(backend):
    program = program_of(backend, threads=2)
    cotangents = [np.array([i, 1.0]) for i in range(len(HELD))]
    with mock.patch.multiple(threads, CALLS_PER_PART=1, MULTIPLICATIONS_PER_PART=1):
        pool = pool_of(program)
        first = pool.hold(program._trace_all(HELD), 0, results=True)
        second = pool.hold(program._trace_all(HELD[:2]), 0, results=True)
        for held, examples in ((second, HELD[:2]), (first, HELD), (first, HELD)):
            if held.memories is not None:
                np.testing.assert_allclose(held.values, program.run(examples), rtol=1e-5)
            found = held.backward(cotangents[: len(examples)])
            other = pool.hold(program._trace_all([[5], [5, 5], [0], [1]]), 0, results=True)  # in its memory
            expected = program.vjp(examples, cotangents[: len(examples)]).gradients
            for name, parameter in program.params.parameters.items():
                pair = [found.parameters[parameter], expected[name]]
                ours, theirs = (np.asarray(dense(g)) for g in pair)
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        assert other.memories is not None


def test_a_backward_pass_that_was_interrupted_can_be_repeated(monkeypatch):
    program = program_of("numpy")
    pool = pool_of(program)
    held = pool.hold(program._trace_all(HELD), 0, results=True)
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
    expected = program.vjp(HELD, cotangents).gradients
    gradients = held.backward(cotangents).parameters
    for name, parameter in program.params.parameters.items():
        pair = [gradients[parameter], expected[name]]
        ours, theirs = (np.asarray(dense(g)) for g in pair)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_memory_is_used_again_once_nobody_holds_it():
    program = program_of("numpy")
    pool, traces = pool_of(program), program._trace_all(HELD)
    held = pool.hold(traces, 0, results=True)
    memories = held.memories
    other = pool.hold(traces, 0, results=True)
    assert other.memories is not memories
    del held
    gc.collect()
    again = pool.hold(traces, 0, results=True)
    assert again.memories is memories
    again.backward([None] * len(HELD))
    assert again.memories is None
    assert pool.hold(traces, 0, training=False).memories is memories


def test_results_are_made_of_other_values():
    program = fb.compile(fb.Record({"a": fb.Scalar(), "b": fb.Map(fb.Scalar())}), "numpy")
    held = pool_of(program).hold(program._trace_all([{"a": 1, "b": [2, 3]}, {"a": 4, "b": []}]), 0)
    assert held.results("wxyz") == [("w", ["x", "y"]), ("z", [])]
