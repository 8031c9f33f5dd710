"""Checks a derivative by numbers: <g, J t> = <J' g, t>, and both against a central difference."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from foldbatch.static.autodiff import jvp, vjp
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, apply, input_node, verify
from foldbatch.static.op import CALL, OPS, Op, Sample
from foldbatch.types import TensorType
from tests.strategies import random_value

STEP = 1e-6
Values = list[Any]


def samples_of(module: Any) -> list[tuple[Op, Sample]]:
    """Return the ops that a module defines, each with every sample of it."""
    return [
        (op, sample)
        for op in OPS.values()
        if op.evaluate.__module__ == module.__name__
        for sample in op.samples
    ]


def sampled(op: Op, sample: Sample, rng: np.random.Generator) -> tuple[tuple[Node, ...], Node, Values]:
    """Return inputs, the op's node on them, and values; a last input tells the length of a new axis."""
    axes = sample.axes or tuple(CALL for _ in sample.types)
    operands = tuple(input_node(type_, axis) for type_, axis in zip(sample.types, axes, strict=True))
    y = apply(op.name, *operands, **sample.attrs)
    inputs = operands
    if y.axis.rank == 2 and y.axis not in axes:
        inputs += (input_node(TensorType((), "bool"), y.axis),)
    return inputs, y, [random_value(rng, x, positive=sample.positive) for x in inputs]


def check_sample(op: Op, sample: Sample, *, order: int = 2) -> None:
    """Check the op's derivatives on a sample, and the derivatives of those up to an order."""
    rng = np.random.default_rng(0)
    inputs, y, values = sampled(op, sample, rng)
    outputs: Sequence[Node] = [y]
    for _ in range(order):
        if not any(x.type.is_float for x in outputs):
            return
        inputs, outputs, values = check_derivatives(inputs, outputs, values, rng)


def check_derivatives(
    inputs: tuple[Node, ...], outputs: Sequence[Node], values: Values, rng: np.random.Generator
) -> tuple[tuple[Node, ...], list[Node], Values]:
    """Check first derivatives at a point; return the gradient's graph and a point, to be checked in turn."""
    verify(Graph(inputs, tuple(outputs)))
    at = [i for i, x in enumerate(inputs) if x.type.is_float]
    wrt = [inputs[i] for i in at]
    outputs = [y for y in outputs if y.type.is_float]
    gs = tuple(input_node(y.type, y.axis) for y in outputs)
    ts = tuple(input_node(x.type, x.axis) for x in wrt)
    lengths = [len(value) for x, value in zip(inputs, values, strict=True) if x.axis.rank == 2]
    length = lengths[0] if lengths else 0
    g_values = [random_value(rng, g, length=length) for g in gs]
    t_values = [random_value(rng, t, length=length) for t in ts]

    found = vjp(outputs, gs, wrt)
    tangents = jvp(outputs, wrt, ts)
    backward = verify(Graph((*inputs, *gs), tuple(c for c in found if c is not None)))
    forward = verify(Graph((*inputs, *ts), tuple(t for t in tangents if t is not None)))
    for x, c in zip(wrt, found, strict=True):
        assert c is None or (c.type, c.axis) == (x.type, x.axis)
    for y, t in zip(outputs, tangents, strict=True):
        assert t is None or (t.type, t.axis) == (y.type, y.axis)

    reached = [t for t, c in zip(t_values, found, strict=True) if c is not None]
    moved = [g for g, t in zip(g_values, tangents, strict=True) if t is not None]
    reverse = inner(evaluate(backward, [*values, *g_values]), reached)
    ahead = inner(moved, evaluate(forward, [*values, *t_values]))

    function = Graph(inputs, tuple(outputs))
    up = inner(g_values, evaluate(function, _moved(values, at, t_values, STEP)))
    down = inner(g_values, evaluate(function, _moved(values, at, t_values, -STEP)))
    scale = max(1.0, abs(reverse), abs(up))
    assert abs(reverse - ahead) < 1e-9 * scale, f"reverse mode {reverse}, forward mode {ahead}"
    assert abs(reverse - (up - down) / (2 * STEP)) < 1e-6 * scale, (
        f"reverse mode {reverse}, difference {up, down}"
    )
    return (*inputs, *gs), list(backward.outputs), [*values, *g_values]


def inner(left: Values, right: Values) -> float:
    pairs = zip(left, right, strict=True)
    return sum((inner(a, b) if isinstance(a, list) else float(np.vdot(a, b)) for a, b in pairs), 0.0)


def _moved(values: Values, at: Sequence[int], tangents: Values, step: float) -> Values:
    moved = list(values)
    for i, t in zip(at, tangents, strict=True):
        value = values[i]
        moved[i] = (
            [v + step * d for v, d in zip(value, t, strict=True)] if isinstance(t, list) else value + step * t
        )
    return moved
