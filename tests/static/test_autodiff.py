"""Derivatives of whole graphs: forward = reverse = finite differences, on every axis."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.static import ops
from foldbatch.static.autodiff import jvp, vjp
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, constant, input_node
from foldbatch.static.op import CALL, UNBATCHED, Axis, ragged
from foldbatch.types import TensorType
from tests.static.derivatives import check_derivatives, inner
from tests.strategies import Problem, problems, random_value


@settings(max_examples=27, deadline=None)
@given(problems())
def test_forward_and_reverse_mode_and_differences_agree(problem: Problem) -> None:
    graph = problem.graph
    check_derivatives(graph.inputs, graph.outputs, problem.values, np.random.default_rng(problem.seed))


@settings(max_examples=25, deadline=None)
@given(problems(smooth=False), st.integers(0, 2**32 - 1))
def test_with_kinks_forward_and_reverse_mode_still_agree(problem: Problem, seed: int) -> None:
    """At a kink there is no derivative, but both modes take the same one."""
    graph = problem.graph
    rng = np.random.default_rng(seed)
    gs = [input_node(y.type, y.axis) for y in graph.outputs]
    ts = [input_node(x.type, x.axis) for x in graph.inputs]
    u = [random_value(rng, g, length=problem.length) for g in gs]
    v = [random_value(rng, t, length=problem.length) for t in ts]
    found = vjp(graph.outputs, gs, graph.inputs)
    tangents = jvp(graph.outputs, graph.inputs, ts)
    backward = Graph((*graph.inputs, *gs), tuple(c for c in found if c is not None))
    forward = Graph((*graph.inputs, *ts), tuple(t for t in tangents if t is not None))
    reached = [value for value, c in zip(v, found, strict=True) if c is not None]
    moved = [value for value, t in zip(u, tangents, strict=True) if t is not None]
    reverse = inner(evaluate(backward, [*problem.values, *u]), reached)
    ahead = inner(evaluate(forward, [*problem.values, *v]), moved)
    assert reverse == pytest.approx(ahead, rel=1e-9, abs=1e-9)


VECTOR = TensorType((3,), "float64")


def _gradient(y: Node, x: Node, values: dict[Node, Any]) -> Any:
    (found,) = vjp([y], [constant(np.ones(y.shape))], [x])
    assert found is not None
    return evaluate(Graph(tuple(values), (found,)), list(values.values()))[0]


def test_a_cotangent_given_once_for_all_counts_for_every_row() -> None:
    """The loss of every call has the cotangent 1; a parameter's gradient sums them."""
    e, w = input_node(VECTOR, ragged()), input_node(VECTOR, UNBATCHED)
    values: dict[Node, Any] = {e: [np.ones(3)] * 5, w: np.ones(3)}
    assert _gradient(e + w, w, values).tolist() == [5, 5, 5]
    assert _gradient(ops.tanh(ops.sum(e * w)) * 0 + ops.sum(e + w), w, values).tolist() == [5, 5, 5]


@pytest.mark.parametrize("axis", [UNBATCHED, CALL, ragged()])
def test_a_derivative_runs_along_the_axis_of_what_it_is_of(axis: Axis) -> None:
    """Also where the rule alone would give one that is the same for all rows."""
    x, w = input_node(VECTOR, axis), input_node(VECTOR, UNBATCHED)
    y = ops.sum(x * w)
    dx, dw = vjp([y], [constant(1.0, "float64")], [x, w])
    (dy,) = jvp([y], [x], [w])
    assert dx is not None
    assert dw is not None
    assert dy is not None
    assert (dx.axis, dw.axis, dy.axis) == (axis, UNBATCHED, axis)


def test_what_no_gradient_reaches_is_none() -> None:
    x, y, i = input_node(VECTOR), input_node(VECTOR), input_node(TensorType((), "int32"))
    loss = ops.cross_entropy(x, i)
    g = constant(1.0, "float64")
    assert vjp([loss], [g], [y, i]) == [None, None]
    assert jvp([loss, y], [y], [x]) == [None, x]
    assert vjp([], [], [x]) == [None]
