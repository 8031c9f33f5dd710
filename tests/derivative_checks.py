"""Checks of a program's derivatives: against each other, finite differences, and other engines.

And a model whose data are read by two cells each.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines import threads
from foldbatch.engines.cotangents import seeds_of
from foldbatch.engines.runner import Runner
from foldbatch.model.dual import LOSS, float_reads
from foldbatch.params.parameters import dense
from foldbatch.program.program import Program
from foldbatch.program.traced import Prepared
from foldbatch.program.variants import Pullback
from foldbatch.scheduler.schedule import seeded, verify
from foldbatch.types import BroadcastType, SequenceType, TensorType, TupleType, Type
from tests.backends import TESTED
from tests.knobs import knobs
from tests.programs import BlockProgram
from tests.programs.comparing import assert_same, gradients_of, share_kernels

STEP = 1e-4  # of finite differences, which are of fourth order
DRAWN = 7  # the step of training, for which the same random numbers are drawn
Arrays = dict[str, Any]


def compiled(program: BlockProgram, backend: str = TESTED, **options: Any) -> Program:
    policy = ("by_component", "by_depth")[program.seed % 2]
    return fb.compile(program.block, backend, threads=1, debug=True, **knobs({"policy": policy, **options}))


WAYS: list[dict[str, Any]] = [
    {"layout": "producer"},
    {"batched": False},
    {"threads": 2},
    {"backend": "reference"},
]


def others(runner: Runner, ways: Sequence[dict[str, Any]] = WAYS) -> Iterator[Runner]:
    """Yield runners of the same model that run it in other ways."""
    for change in ways:
        other = Runner(runner.model, replace(runner.options, **change), runner.seed)
        share_kernels(runner, other)
        yield other


def tangents_of(program: Program, rng: np.random.Generator) -> Arrays:
    own = program.model.parameters  # calls whose values nobody uses may bring others
    trained = [name for name, p in program.params.parameters.items() if p.trainable and p in own]
    return {name: rng.normal(size=program.params[name].shape) for name in trained}


def inner(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
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
    return np.concatenate([np.zeros(0), *(np.ravel(dense(g)) for g in gradients.values())])


def assert_near(found: Any, right: Any, tolerance: float, scale: float = 1.0) -> None:
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
        for other in others(engine._ready.derivatives._dual):
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
        for other in others(engine._ready.derivatives._dual):
            _, found = other.value_and_grad(traces, DRAWN)
            assert_near(flat({n: found[engine.params.parameters[n]] for n in hv}), flat(hv), 1e-9)


def wave(x: Any) -> Any:
    """Return a direction for data that is a function of the data, so that all readers agree on it."""
    return np.cos(37.0 * x)


def along_waves(engine: Program, prepared: list[Prepared], found: Mapping[str, Any]) -> float:
    """Return the inner product of gradients of data with the wave of the data."""
    along = 0.0
    for name, (_, places) in float_reads(engine.model).items():
        data = [[p.trace.feeds[k][i] for p in prepared] for (k, i), *_ in places]
        if len(places) == 1:  # else they are mixed, in the order of visits
            along += float(np.vdot(found[name].values, wave(np.concatenate(data[0]))))
            counts = [len(column) for column in data[0]]
            assert found[name].examples.tolist() == np.repeat(np.arange(len(counts)), counts).tolist()
            assert found[name].nodes.tolist() == [i for n in counts for i in range(n)]
        else:
            along += sum_over_mixed(engine, prepared, found[name], places)
    return along


def moved(engine: Program, prepared: list[Prepared], distance: float) -> list[Prepared]:
    """Return the examples with all their data a distance further along the wave."""
    further = []
    for p in prepared:
        columns = [
            tuple(c + distance * wave(c) if c.dtype.kind == "f" else c for c in cell)
            for cell in p.trace.feeds
        ]
        further.append(Prepared(replace(p.trace, feeds=tuple(columns)), engine._ready))
    return further


def assert_input_gradients(engine: Program, program: BlockProgram) -> None:
    """Check gradients of data against finite differences of all data at once, and other engines."""
    prepared = engine.prepare(program.examples)
    found_loss, _, found = engine.vjp(program.examples, step=DRAWN, inputs=True)
    assert set(found) == set(float_reads(engine.model))
    along = along_waves(engine, prepared, found)

    def at(k: int) -> float:
        return engine.value_and_grad(moved(engine, prepared, k * STEP), step=DRAWN)[0]

    right = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * STEP)
    assert_near(along, right, 1e-6, abs(found_loss))
    assert_near(found_loss, at(0), 1e-9)
    traces = engine._trace_all(program.examples)
    derivatives = engine._ready.derivatives
    key = (True, ("inputs", True), ("losses", True), ("results", False))
    with mock.patch.multiple(threads, CALLS_PER_PART=1, MULTIPLICATIONS_PER_PART=1):
        for other in others(derivatives._runners[key]):
            derivatives._runners[key] = other
            loss, _, same = derivatives.vjp(traces, DRAWN, None, inputs=True)
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


def cotangents_like(type_: Type, result: Any, rng: np.random.Generator, none: float = 0.1) -> Any:
    """Return a random cotangent of a result: None for parts that are not floats, and for some that are."""
    if rng.random() < none:
        return None
    match type_:
        case TensorType():
            return rng.normal(size=type_.shape) if type_.is_float else None
        case TupleType(items):
            parts = zip(items, result, strict=True)
            return tuple(cotangents_like(item, part, rng, none) for item, part in parts)
        case SequenceType(element):
            return [cotangents_like(element, part, rng, none) for part in result]
        case BroadcastType(element):
            return cotangents_like(element, next(result), rng, none)
    return None


def with_cotangents(type_: Type, result: Any, cotangent: Any) -> Any:
    """Return the inner product of a result with its cotangent."""
    if cotangent is None:
        return 0.0
    match type_:
        case TupleType(items):
            parts = zip(items, result, cotangent, strict=True)
            return sum(with_cotangents(*part) for part in parts)
        case SequenceType(element):
            return sum(with_cotangents(element, *part) for part in zip(result, cotangent, strict=True))
        case BroadcastType(element):
            return with_cotangents(element, next(result), cotangent)
    return float(np.vdot(result, cotangent))


def combined(a: float, x: Any, b: float, y: Any) -> Any:
    """Return a times one cotangent plus b times another of the same result."""
    if x is None or y is None:
        left, factor = (y, b) if x is None else (x, a)
        return None if left is None else combined(factor, left, 0.0, left)
    if isinstance(x, tuple | list):
        return type(x)(combined(a, i, b, j) for i, j in zip(x, y, strict=True))
    return a * x + b * y


def pulled(found: Pullback) -> Any:
    inputs = [np.ravel(gradient.values) for gradient in found.inputs.values()]
    return np.concatenate([flat(found.gradients), *inputs])


def assert_vjp(engine: Program, program: BlockProgram) -> None:
    """Check vjp: its laws, finite differences of results, and other engines."""
    examples, rng = program.examples, np.random.default_rng(program.seed)
    assert_vjp_of_losses(engine, program)
    of = engine.model.result
    one, two = ([cotangents_like(of, result, rng) for result in engine.run(examples)] for _ in range(2))
    found = engine.vjp(examples, one, inputs=True, step=DRAWN)
    a, b = 2.0, -0.5
    both = [combined(a, x, b, y) for x, y in zip(one, two, strict=True)]
    terms = a * pulled(found), b * pulled(engine.vjp(examples, two, inputs=True, step=DRAWN))
    scale = sum(float(np.abs(term).max(initial=1.0)) for term in terms)
    summed = engine.vjp(examples, both, inputs=True, step=DRAWN)
    assert_near(pulled(summed), sum(terms), 1e-9, scale)
    of_losses = engine.vjp(examples, inputs=True, step=DRAWN)
    with_losses = engine.vjp(examples, one, losses=True, inputs=True, step=DRAWN)
    assert_near([found.loss, with_losses.loss], [of_losses.loss] * 2, 1e-12)
    assert_near(pulled(with_losses), pulled(found) + pulled(of_losses), 1e-9)
    if not any(engine.model.keys):  # else what is trained is not what inference computes
        assert_pulled_back_by_differences(engine, program, one, found)
    assert_pulled_back_by_others(engine, program, one, found)


def assert_vjp_of_losses(engine: Program, program: BlockProgram) -> None:
    """Check that vjp without cotangents is `value_and_grad`."""
    loss, gradients = engine.value_and_grad(program.examples, step=DRAWN)
    found = engine.vjp(program.examples, step=DRAWN)
    assert_near(found.loss, loss, 1e-12)
    assert list(found.gradients) == list(gradients)
    assert len(found.inputs) == 0
    for name, gradient in gradients.items():
        assert type(found.gradients[name]) is type(gradient)
        assert_near(dense(found.gradients[name]), dense(gradient), 1e-12)
    inputs = engine.vjp(program.examples, inputs=True, step=DRAWN).inputs
    _, _, right = engine.vjp(program.examples, step=DRAWN, inputs=True)
    assert set(inputs) == set(right)
    for name, gradient in right.items():
        assert_near(inputs[name].values, gradient.values, 1e-12)


def assert_pulled_back_by_differences(
    engine: Program, program: BlockProgram, cotangents: Any, found: Pullback
) -> None:
    """Check gradients from cotangents along a direction of all parameters and data at once.

    As in `tests.test_laws.assert_differentiated`, what jumps next to the point has no derivative.
    """
    prepared = engine.prepare(program.examples)
    tangents = tangents_of(engine, np.random.default_rng(program.seed))
    origin = {name: engine.params[name].copy() for name in tangents}

    def at(distance: float) -> float:
        for name, tangent in tangents.items():
            engine.params[name] = origin[name] + distance * tangent
        results = engine.run(moved(engine, prepared, distance))
        pairs = zip(results, cotangents, strict=True)
        return sum(with_cotangents(engine.model.result, result, given) for result, given in pairs)

    def difference(step: float) -> float:
        return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)

    right, size = difference(1e-4), abs(at(0.0))
    along = inner(found.gradients, tangents) + along_waves(engine, prepared, found.inputs)
    scale = max(1.0, size)
    if along != pytest.approx(right, rel=1e-6, abs=1e-6 * scale):
        closer = difference(1e-6)
        at(0.0)
        jumps = abs(closer) > 50 * abs(right) > 50
        assert jumps or along == pytest.approx(closer, rel=1e-5, abs=1e-5 * scale)


def assert_pulled_back_by_others(
    engine: Program, program: BlockProgram, cotangents: Any, found: Pullback
) -> None:
    """Check gradients from cotangents against those of other ways to run."""
    traces = engine._trace_all(program.examples)
    seeds = seeds_of(engine.model.result, [trace.result for trace in traces], cotangents)
    derivatives = engine._ready.derivatives
    key = (True, ("inputs", True), ("losses", False), ("results", True))
    outputs = tuple(cell.outputs for cell in engine.model.signatures)
    first = derivatives._runners[key]
    ways = [*WAYS, {"share": "subtrees"}, {"share": None}, {"share": "subtrees", "threads": 2}]
    with mock.patch.multiple(threads, CALLS_PER_PART=1, MULTIPLICATIONS_PER_PART=1):
        for other in others(first, ways):
            verify(seeded(other.scheduled(traces).schedule, other.model.results), outputs)
            derivatives._runners[key] = other
            same = derivatives.vjp(traces, DRAWN, seeds, losses=False, inputs=True)
            assert_near(same.loss, found.loss, 1e-9)
            assert list(same.gradients) == list(found.gradients)
            assert_near(pulled(same), pulled(found), 1e-9)
    derivatives._runners[key] = first


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
