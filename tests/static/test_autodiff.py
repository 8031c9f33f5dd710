"""Derivatives of whole graphs: forward = reverse = finite differences, on every axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.autodiff import depends_on, jvp, trainable, vjp
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, apply, constant, input_node, parameter_node
from foldbatch.static.op import CALL, UNBATCHED, Axis, ragged
from foldbatch.types import TensorType
from tests.static.derivatives import check_derivatives, inner
from tests.strategies import Problem, problems, random_value

SCALAR, VECTOR = TensorType((), "float64"), TensorType((3,), "float64")


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


@pytest.mark.parametrize("axis", [CALL, ragged()])
def test_a_cotangent_that_is_the_same_for_all_rows_is_given_to_each(axis: Axis) -> None:
    """The gradient of a weight's gradient: what a row adds to the sum does not depend on the row."""
    x, w, d = (
        input_node(VECTOR, axis),
        input_node(VECTOR, UNBATCHED),
        input_node(TensorType((3, 3), "float64"), UNBATCHED),
    )
    (dx,) = vjp([apply("sum_outer", w, x)], [d], [x])
    assert dx is not None
    assert dx.axis is axis
    (tangent,) = jvp([apply("sum_batch", x)], [x], [w])
    assert tangent is not None
    assert (tangent.op.name, tangent.inputs[0].op.name) == ("sum_batch", "batch")
    assert jvp([x], [x], [w]) == [apply("batch", w, axis=axis)]


def test_a_tangent_given_once_for_all_counts_for_every_element() -> None:
    e, w = input_node(VECTOR, ragged()), input_node(VECTOR, UNBATCHED)
    for y in (ops.segment_sum(e + w), apply("sum_batch", e + w)):
        (found,) = jvp([y], [w], [w])
        assert found is not None
        assert evaluate(Graph((e, w), (found,)), [[np.ones(3)] * 4, np.ones(3)])[0].tolist() == [4, 4, 4]


def test_a_gradient_with_several_sources_is_one_sum() -> None:
    x = input_node(VECTOR)
    y = ops.tanh(x) + ops.exp(x) + ops.sigmoid(x) + x
    (found,) = vjp([y], [x], [x])
    assert found is not None
    assert (found.op.name, len(found.inputs)) == ("add", 4)


def test_what_no_gradient_reaches_is_none() -> None:
    x, y, i = input_node(VECTOR), input_node(VECTOR), input_node(TensorType((), "int32"))
    loss = ops.cross_entropy(x, i)
    g = constant(1.0, "float64")
    assert vjp([loss], [g], [y, i]) == [None, None]
    assert jvp([loss, y], [y], [x]) == [None, x]
    assert vjp([], [], [x]) == [None]


def test_an_output_that_is_itself_asked_for_gets_its_cotangent() -> None:
    x = input_node(VECTOR)
    y = ops.tanh(x)
    g = input_node(VECTOR)
    assert vjp([y], [g], [y]) == [g]
    assert vjp([x], [g], [x]) == [g]
    assert jvp([y], [y], [g]) == [g]


def test_an_output_given_twice_counts_twice() -> None:
    x, g = input_node(SCALAR), input_node(SCALAR)
    assert vjp([x, x], [g, g], [x]) == [g + g]


def test_an_interior_node_may_be_asked_for_and_the_walk_goes_on_behind_it() -> None:
    x, g = input_node(SCALAR), input_node(SCALAR)
    y = x * x
    z = y * 3
    dy, dx = vjp([z], [g], [y, x])
    assert dy is not None
    assert dx is not None
    assert evaluate(Graph((x, g), (dy, dx)), [5.0, 1.0]) == [3.0, 30.0]


def test_a_node_that_moves_by_itself_hides_what_lies_behind_it() -> None:
    """In forward mode the tangent that is given counts, not the one that would be computed."""
    x, t = input_node(SCALAR), input_node(SCALAR)
    y = x * x
    assert jvp([y + 1], [x, y], [t, t]) == [t]


def test_the_trainable_parameters_behind_outputs() -> None:
    weight, frozen, other = Parameter(VECTOR), Parameter(VECTOR, trainable=False), Parameter(VECTOR)
    x = input_node(VECTOR)
    y = x * weight + frozen
    assert trainable([y]) == [parameter_node(weight)]
    assert parameter_node(other) not in depends_on([y], trainable([y]))


def test_only_what_lies_on_a_path_is_active() -> None:
    x, y = input_node(VECTOR), input_node(VECTOR)
    through, beside = ops.tanh(x), ops.tanh(y)
    z = through + beside
    assert depends_on([z], [x]) == {x, through, z}
    assert depends_on([ops.sign(through)], [x]) == {x, through}
