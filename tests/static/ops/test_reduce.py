"""Reductions: derivatives on every sample, stable forms, ties, type rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foldbatch.errors import GraphError
from foldbatch.static import ops
from foldbatch.static.autodiff import vjp
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, apply, constant, input_node
from foldbatch.types import TensorType


def _gradient(y: Node, x: Node, value: Any) -> Any:
    (g,) = vjp([y], [constant(np.ones(y.shape))], [x])
    assert g is not None
    return evaluate(Graph((x,), (g,)), [value])[0]


def test_at_a_tie_the_gradient_of_max_goes_to_the_first() -> None:
    x = input_node(TensorType((4,), "float64"))
    assert _gradient(ops.max(x), x, [1.0, 7.0, 7.0, 3.0]).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_gradient_of_max_lies_along_its_own_axis(axis: int) -> None:
    x = input_node(TensorType((2, 3, 4), "float64"))
    value = np.random.default_rng(0).normal(size=(2, 3, 4))
    expected = (value == value.max(axis, keepdims=True)).astype(float)
    np.testing.assert_array_equal(_gradient(ops.max(x, axis), x, value), expected)


def test_large_numbers_neither_overflow_nor_warn() -> None:
    x, label = input_node(TensorType((3,), "float64")), input_node(TensorType((), "int32"))
    outputs = (ops.softmax(x), ops.logsumexp(x), ops.cross_entropy(x, label))
    with np.errstate(all="raise", under="ignore"):
        probability, total, loss = evaluate(Graph((x, label), outputs), [[1e4, 0.0, 1e4], np.int32(1)])
    np.testing.assert_allclose(probability, [0.5, 0, 0.5])
    np.testing.assert_allclose([total, loss], [1e4 + np.log(2), 1e4 + np.log(2)])


def test_the_gradient_of_cross_entropy_is_softmax_less_the_label() -> None:
    """At logits where log(softmax) would be -inf, it is still finite."""
    x = input_node(TensorType((3,), "float64"))
    found = _gradient(ops.cross_entropy(x, constant(1)), x, [1e4, 0.0, -1e4])
    np.testing.assert_allclose(found, [1, -1, 0])


def test_a_sum_over_no_elements_is_zero_and_a_maximum_of_none_is_refused() -> None:
    x = input_node(TensorType((2, 0), "float64"))
    assert evaluate(Graph((x,), (ops.sum(x, 1),)), [np.zeros((2, 0))])[0].tolist() == [0, 0]
    for name in ("max", "argmax", "softmax", "logsumexp"):
        with pytest.raises(GraphError, match=f"ops.{name}: expected at least one element"):
            apply(name, x, axis=1)
        assert apply(name, x, axis=0).type.size == 0


def test_booleans_are_not_summed_by_accident() -> None:
    x = input_node(TensorType((3,)))
    with pytest.raises(GraphError, match="expected numbers, found bool"):
        ops.sum(x > 0)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_one_hot_has_the_dtype_asked_for(dtype: str) -> None:
    ids = input_node(TensorType((2,), "int64"))
    y = ops.one_hot(ids, 3, dtype)
    assert y.type == TensorType((2, 3), dtype)
    assert evaluate(Graph((ids,), (y,)), [np.array([2, 0])])[0].tolist() == [[0, 0, 1], [1, 0, 0]]
