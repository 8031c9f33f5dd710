"""Checks of a program's derivatives: against each other, finite differences, and other engines.

And a model whose data are read by two cells each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

import foldbatch as fb
from foldbatch import ops
from foldbatch.derivatives import dense
from foldbatch.engines import threads
from foldbatch.engines.cotangents import seeds_of
from foldbatch.engines.runner import Runner
from foldbatch.model.dual import LOSS
from foldbatch.model.sources import float_reads
from foldbatch.program import Program
from foldbatch.traced import Prepared
from foldbatch.types import BroadcastType, SequenceType, TensorType, TupleType, Type
from tests.programs import BlockProgram
from tests.test_laws import assert_same, gradients_of, share_kernels

STEP = 1e-4  # of finite differences, which are of fourth order
DRAWN = 7  # the step of training, for which the same random numbers are drawn
Arrays = dict[str, Any]


def compiled(program: BlockProgram, backend: str = "numpy") -> Program:
    """Return the program, by one of the policies."""
    policy = ("by_component", "by_depth")[program.seed % 2]
    return fb.compile(program.block, backend, policy, threads=1, debug=True)


def others(runner: Runner) -> Iterator[Runner]:
    """Yield runners of the same model that run it in other ways, the reference last."""
    changes: list[dict[str, Any]] = [{"layout": "producer"}, {"batched": False}, {"threads": 2}]
    for change in (*changes, {"backend": "reference"}):
        other = Runner(runner.model, replace(runner.options, **change), runner.seed)
        share_kernels(runner, other)
        yield other


def tangents_of(program: Program, rng: np.random.Generator) -> Arrays:
    """Return a random direction."""
    trained = [name for name, p in program.params.parameters.items() if p.trainable]
    return {name: rng.normal(size=program.params[name].shape) for name in trained}


def inner(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """Return the inner product of gradients with a direction."""
    return sum(float(np.vdot(dense(a[name]), b[name])) for name in b)


def difference(program: Program, examples: Any, tangents: Arrays, of: Any) -> Any:
    """Return the derivative of a function of the program along tangents, by finite differences."""
    origin = {name: program.params[name].copy() for name in tangents}
    planned = program.plan(examples)

    def at(k: int) -> Any:
        for name, tangent in tangents.items():
            program.params[name] = origin[name] + k * STEP * tangent
        return of(program.value_and_grad(planned, step=DRAWN))

    found = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * STEP)
    for name, value in origin.items():
        program.params[name] = value
    return found


def flat(gradients: Mapping[str, Any]) -> Any:
    """Return gradients as one vector."""
    return np.concatenate([np.zeros(0), *(np.ravel(dense(g)) for g in gradients.values())])


def assert_near(found: Any, right: Any, tolerance: float, scale: float = 1.0) -> None:
    """Check numbers whose rounding errors are of a scale."""
    scale = max(scale, float(np.abs(right).max(initial=1.0)))
    np.testing.assert_allclose(found, right, rtol=tolerance, atol=tolerance * scale)


def assert_jvp(engine: Program, program: BlockProgram) -> None:
    """Check jvp against the gradient, finite differences, and other engines."""
    tangents = tangents_of(engine, np.random.default_rng(program.seed))
    loss, gradients = engine.value_and_grad(program.examples, step=DRAWN)
    found, along = engine.jvp(program.examples, tangents, step=DRAWN)
    assert_near(found, loss, 1e-9)
    assert_near(along, inner(gradients, tangents), 1e-9, sum(np.abs(flat(gradients) * flat(tangents))))
    assert_near(along, difference(engine, program.examples, tangents, lambda x: x[0]), 1e-6, abs(loss))
    traces = engine._trace_all(program.examples)
    with mock.patch.multiple(threads, CALLS_PER_PART=1, MULTIPLICATIONS_PER_PART=1):
        for other in others(engine._derivatives._dual):
            results = other.run(traces, DRAWN)
            losses = results.metrics[LOSS].values if LOSS in results.metrics else np.zeros(0)
            assert_near(results.loss, along, 1e-9)
            assert_near(losses.sum(), loss, 1e-9)


def assert_hvp(engine: Program, program: BlockProgram) -> None:
    """Check that hvp is symmetric, a finite difference of gradients, and that of other engines."""
    rng = np.random.default_rng(program.seed)
    u, v = tangents_of(engine, rng), tangents_of(engine, rng)
    hu, hv = (engine.hvp(program.examples, t, step=DRAWN) for t in (u, v))
    assert {name: g.shape for name, g in hv.items()} == {name: g.shape for name, g in v.items()}
    scale = float(np.abs(flat(hu)).sum() + np.abs(flat(hv)).sum())
    assert_near(inner(hv, u), inner(hu, v), 1e-9, scale)
    right = difference(engine, program.examples, v, lambda x: flat(x[1]))
    assert_near(
        flat(hv), right, 1e-6, float(np.abs(flat(gradients_of(engine, program.examples)[1])).max(initial=1))
    )
    traces = engine._trace_all(program.examples)
    with mock.patch.multiple(threads, CALLS_PER_PART=1, MULTIPLICATIONS_PER_PART=1):
        for other in others(engine._derivatives._dual):
            _, found = other.value_and_grad(traces, DRAWN)
            assert_near(flat({n: found[engine.params.parameters[n]] for n in hv}), flat(hv), 1e-9)


def cotangent_of(type_: Type, result: Any, rng: np.random.Generator) -> Any:
    """Return a random cotangent of a result, in its form."""
    match type_:
        case TensorType() if type_.is_float:
            return rng.normal(size=type_.shape)
        case TupleType(items):
            return tuple(cotangent_of(item, part, rng) for item, part in zip(items, result, strict=True))
        case SequenceType(element):
            return [cotangent_of(element, part, rng) for part in result]
        case BroadcastType(element):
            return cotangent_of(element, result, rng)
    return None


def inner_of_results(results: Any, cotangents: Any) -> float:
    """Return the inner product of results with cotangents."""
    if cotangents is None:
        return 0.0
    if isinstance(cotangents, tuple | list):
        return sum(inner_of_results(*pair) for pair in zip(results, cotangents, strict=True))
    return float(np.vdot(results, cotangents))


def assert_vjp(engine: Program, program: BlockProgram) -> None:
    """Check gradients from results against finite differences, gradients from losses, and other engines."""
    rng = np.random.default_rng(program.seed)
    results = list(engine.run(program.examples))
    cotangents = [cotangent_of(engine.model.result, result, rng) for result in results]
    tangents = tangents_of(engine, rng)
    loss, gradients, inputs = engine.vjp(program.examples, cotangents, step=DRAWN)
    assert len(inputs) == 0
    right, from_losses = engine.value_and_grad(program.examples, step=DRAWN)
    assert_near(loss, right, 1e-9)
    scale = max(1.0, float(sum(np.abs(dense(g)).sum() for g in gradients.values())))
    if not any(engine.model.keys):  # what is trained is what inference computes
        planned, origin = engine.plan(program.examples), {n: engine.params[n].copy() for n in tangents}

        def at(k: int) -> float:
            for name, tangent in tangents.items():
                engine.params[name] = origin[name] + k * STEP * tangent
            return inner_of_results(list(engine.run(planned)), cotangents)

        along = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * STEP)
        at(0)
        assert_near(inner(gradients, tangents), along, 1e-6, scale)
    both = engine.vjp(program.examples, cotangents, losses=True, step=DRAWN).gradients
    for name, gradient in both.items():
        assert_near(dense(gradient), dense(gradients[name]) + dense(from_losses[name]), 1e-9, scale)
    traces, derivatives, key = (
        engine._trace_all(program.examples),
        engine._derivatives,
        (False, True, True, False),
    )
    seeds = seeds_of(engine.model.result, [trace.result for trace in traces], cotangents)
    with mock.patch.multiple(threads, CALLS_PER_PART=1, MULTIPLICATIONS_PER_PART=1):
        for other in others(derivatives._runners[key]):
            derivatives._runners[key] = other
            same = derivatives.vjp(traces, DRAWN, seeds, losses=False).gradients
            assert_near(flat({name: same[name] for name in gradients}), flat(gradients), 1e-9, scale)


def wave(x: Any) -> Any:
    """Return a direction for data that is a function of the data, so that all readers agree on it."""
    return np.cos(37.0 * x)


def assert_input_gradients(engine: Program, program: BlockProgram) -> None:
    """Check gradients of data against finite differences of all data at once, and other engines."""
    prepared = engine.prepare(program.examples)
    found_loss, found = engine.input_gradients(program.examples, step=DRAWN)
    reads = float_reads(engine.model)
    assert set(found) == set(reads)
    along = 0.0
    for name, (_, places) in reads.items():
        data = [[p.trace.feeds[k][i] for p in prepared] for (k, i), *_ in places]
        if len(places) == 1:  # else they are mixed, in the order of visits
            along += float(np.vdot(found[name].values, wave(np.concatenate(data[0]))))
            counts = [len(column) for column in data[0]]
            assert found[name].examples.tolist() == np.repeat(np.arange(len(counts)), counts).tolist()
            assert found[name].nodes.tolist() == [i for n in counts for i in range(n)]
        else:
            along += sum_over_mixed(engine, prepared, found[name], places)

    def at(k: int) -> float:
        moved = []
        for p in prepared:
            columns = [
                tuple(c + k * STEP * wave(c) if c.dtype.kind == "f" else c for c in cell)
                for cell in p.trace.feeds
            ]
            moved.append(Prepared(replace(p.trace, feeds=tuple(columns)), engine))
        return engine.value_and_grad(moved, step=DRAWN)[0]

    right = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * STEP)
    assert_near(along, right, 1e-6, abs(found_loss))
    assert_near(found_loss, at(0), 1e-9)
    traces = engine._trace_all(program.examples)
    derivatives, key = engine._derivatives, (True, False, False, True)  # from losses, of inputs alone
    with mock.patch.multiple(threads, CALLS_PER_PART=1, MULTIPLICATIONS_PER_PART=1):
        for other in others(derivatives._runners[key]):
            derivatives._runners[key] = other
            loss, _, same = derivatives.vjp(traces, DRAWN, None, parameters=False, inputs=True)
            assert_near(loss, found_loss, 1e-9)
            for name, gradient in found.items():
                assert_near(same[name].values, gradient.values, 1e-9)
                assert_same(same[name].examples, gradient.examples)
                assert_same(same[name].nodes, gradient.nodes)


def sum_over_mixed(engine: Program, prepared: list[Prepared], found: Any, places: Any) -> float:
    """Return the inner product with the wave of data that several places of the program read."""
    along = 0.0
    for number, p in enumerate(prepared):
        calls = np.concatenate([p.trace.calls[k][:, 0] for (k, _), *_ in places])
        data = np.concatenate([p.trace.feeds[k][i] for (k, i), *_ in places])[
            np.argsort(calls, kind="stable")
        ]
        along += float(np.vdot(found.values[found.examples == number], wave(data)))
    return along


def passed_down_and_up() -> fb.Block:
    """Return a model in which each node's datum is read before its children are visited, and behind them."""
    w = fb.Parameter([2, "float64"], [0.3, -0.7], "w")
    pair = fb.types.TensorType((2,), "float64")
    tree = fb.ForwardDeclaration(fb.types.TupleType((fb.types.OBJECT, pair)), pair, "tree")
    node = fb.Composition("node")
    with node.scope():
        whole, given_ = node.input[0], node.input[1]
        x = (fb.GetItem("x") >> fb.Vector(2, "float64")).reads(whole)
        passed = fb.Function(lambda given, x: ops.tanh(given + x * w)).reads(given_, x)
        each = (
            fb.AllOf(fb.GetItem(0), fb.GetItem(1) >> fb.Broadcast()) >> fb.Zip() >> fb.Map(tree()) >> fb.Sum()
        )
        below = each.reads(fb.GetItem("kids").reads(whole), passed)
        node.output.reads(fb.Function(lambda x, below: ops.sin(x * below)).reads(x, below))
    leaf = fb.AllOf(fb.GetItem(0) >> fb.GetItem("x") >> fb.Vector(2, "float64"), fb.GetItem(1))
    leaf = leaf >> fb.Function(lambda x, given: x * given + given)
    inner_ = fb.GetItem(0) >> fb.InputTransform(lambda node: bool(node["kids"]))
    tree.resolve_to(fb.OneOf(inner_, {True: node, False: leaf}))
    start = fb.FromTensor(np.array([0.5, 1.0]))
    return fb.AllOf(fb.Identity(), start) >> tree() >> fb.Function(ops.sum) >> fb.Loss()
