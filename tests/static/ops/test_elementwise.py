"""Elementwise ops: derivatives on every sample, broadcasting over all batch axes, edges."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.errors import GraphError
from foldbatch.static import ops
from foldbatch.static.autodiff import vjp
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, apply, constant, input_node, verify
from foldbatch.static.op import CALL, UNBATCHED, Axis
from foldbatch.types import TensorType
from tests.static.derivatives import check_derivatives
from tests.strategies import ELEMENTS, random_value, shapes

AXES = (UNBATCHED, CALL, ELEMENTS)
SCALAR = TensorType((), "float64")
Ends = list[tuple[tuple[int, ...], Axis]]
Function = Callable[[Node], Node]
SHAPES = [((), (3,)), ((3,), ()), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 1), (1, 3)), ((2, 1, 3), (4, 1))]


def test_operands_broadcast_in_any_order_along_any_axes() -> None:
    """A batch axis never meets an instance axis, however many axes the operands have."""
    for left, right in SHAPES:
        for axes in list(itertools.product(AXES, AXES)):
            rng = np.random.default_rng(0)
            x, y = (
                input_node(TensorType(s, "float64"), axis)
                for s, axis in zip((left, right), axes, strict=True)
            )
            z = x - y
            inputs, values = (x, y), [random_value(rng, x), random_value(rng, y)]
            verify(Graph(inputs, (z,)))
            assert z.axis is max(axes, key=lambda axis: axis.rank)
            assert all(operand.axis is UNBATCHED or operand.ndim == z.ndim for operand in z.inputs)
            (found,) = evaluate(Graph(inputs, (z,)), values)
            a, b = (v if axis is ELEMENTS else [v] * 3 for v, axis in zip(values, axes, strict=True))
            expected = [p - q for p, q in zip(a, b, strict=True)]
            np.testing.assert_allclose(found, expected if z.axis is ELEMENTS else expected[0])
            check_derivatives(inputs, [z], values, rng)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(shapes, st.sampled_from(AXES)), min_size=1, max_size=4), st.integers(0, 4))
def test_a_sum_of_any_operands_has_the_derivatives_of_a_sum(ends: Ends, repeated: int) -> None:
    inputs = tuple(input_node(TensorType(shape, "float64"), axis) for shape, axis in ends)
    try:
        total = ops.add(*inputs, *inputs[:repeated])
    except GraphError:
        return
    rng = np.random.default_rng(0)
    check_derivatives(inputs, [total], [random_value(rng, x) for x in inputs], rng)


def _at(function: Function, values: list[float]) -> tuple[list[float], list[float]]:
    """Return the values and derivatives of a function of one scalar."""
    x = input_node(SCALAR)
    y = function(x)
    (g,) = vjp([y], [constant(1.0, "float64")], [x])
    pairs = [evaluate(Graph((x,), (y, g)), [v]) for v in values] if g is not None else []
    return [float(y) for y, _ in pairs], [float(g) for _, g in pairs]


@pytest.mark.parametrize(
    ("name", "values", "slopes"),
    [
        ("sigmoid", [0, 1], [0, 0]),
        ("tanh", [-1, 1], [0, 0]),
        ("softplus", [0, 1000], [0, 1]),
        ("relu", [0, 1000], [0, 1]),
        ("abs", [1000, 1000], [-1, 1]),
    ],
)
def test_a_saturated_function_neither_overflows_nor_warns(name, values, slopes):
    with np.errstate(all="raise", under="ignore"):
        assert _at(getattr(ops, name), [-1000, 1000]) == (values, slopes)


@pytest.mark.parametrize("name", ["relu", "abs"])
def test_the_slope_at_a_kink_is_zero(name: str) -> None:
    assert _at(getattr(ops, name), [0.0]) == ([0.0], [0.0])


@pytest.mark.parametrize(("exponent", "slope"), [(0, 0), (1, 1), (2, 0), (3, 0)])
def test_a_power_has_a_slope_at_zero(exponent: int, slope: float) -> None:
    """Also where the rule's x to the (exponent - 1) would be infinite."""
    assert _at(lambda x: x**exponent, [0.0])[1] == [slope]


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_at_a_tie_the_gradient_goes_to_the_first_operand(name: str) -> None:
    a, b = input_node(SCALAR), input_node(SCALAR)
    found = vjp([apply(name, a, b)], [constant(1.0, "float64")], [a, b])
    assert [float(g) for g in evaluate(Graph((a, b), tuple(found)), [2.0, 2.0])] == [1, 0]


def test_no_gradient_flows_through_a_sign_a_comparison_or_an_integer() -> None:
    x = input_node(TensorType((3,)))
    outputs = [ops.sign(x), ops.cast(x > 0, "float32"), ops.cast(ops.cast(x, "int32"), "float32")]
    assert vjp(outputs, outputs, [x]) == [None]


def test_the_second_derivative_of_abs_is_zero() -> None:
    x = input_node(SCALAR)
    (slope,) = vjp([ops.abs(x)], [constant(1.0, "float64")], [x])
    assert slope is not None
    assert vjp([slope], [constant(1.0, "float64")], [x]) == [None]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_arithmetic_keeps_the_dtype(dtype: str) -> None:
    x = input_node(TensorType((3,), dtype))
    results: list[Node] = [x + 1, 2 - x, x * x, -x, ops.abs(x), ops.square(x), ops.maximum(x, 0), ops.sign(x)]
    assert {y.dtype for y in results} == {dtype}
    for y in evaluate(Graph((x,), tuple(results)), [np.array([-1, 0, 2], dtype)], dtype="float32"):
        assert y.dtype == ("float32" if dtype.startswith("float") else dtype)
