"""Functions of calls and sequences, as compositions: what they mean for sequences of any length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from foldbatch.errors import GraphError
from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, input_node
from foldbatch.static.op import CALL, ragged
from foldbatch.static.verify import verify
from foldbatch.types import TensorType

X = input_node(TensorType((3,), "float64"), ragged())


def _zero_if_empty(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda values: function(values, 0) if len(values) else np.zeros(3)


@pytest.mark.parametrize("name", ["sum", "max", "min", "mean"])
def test_a_reduction_is_numpys_over_the_sequence(name: str) -> None:
    """And zero where there is nothing to reduce."""
    for length in [0, 1, 4]:
        values = np.random.default_rng(0).normal(size=(length, 3))
        y = getattr(ops, f"segment_{name}")(X)
        assert (y.type, y.axis) == (X.type, CALL)
        (found,) = evaluate(verify(Graph((X,), (y,))), [list(values)])
        np.testing.assert_allclose(found, _zero_if_empty(getattr(np, name))(values), rtol=1e-14)


def test_attention_over_a_sequence_is_a_weighted_mean() -> None:
    scores = input_node(TensorType((), "float64"), X.axis)
    weights = ops.segment_softmax(scores)
    assert (weights.type, weights.axis) == (scores.type, scores.axis)
    graph = verify(Graph((X, scores), (ops.segment_sum(weights * X),)))
    values = np.random.default_rng(0).normal(size=(4, 3))
    (found,) = evaluate(graph, [list(values), [np.array(1.0)] * 4])
    np.testing.assert_allclose(found, values.mean(0))


def test_the_minimum_of_integers_is_an_integer() -> None:
    x = input_node(TensorType((), "int64"), ragged())
    (found,) = evaluate(Graph((x,), (ops.segment_min(x),)), [[np.int64(3), np.int64(-2)]])
    assert (found, found.dtype) == (-2, np.int64)


@pytest.mark.parametrize("name", ["sum", "max", "min", "mean", "softmax"])
def test_only_elements_of_a_sequence_are_reduced(name: str) -> None:
    function: Callable[[Node], Node] = getattr(ops, f"segment_{name}")
    with pytest.raises(GraphError, match=r"ops.segment_\w+: expected a tensor of a sequence's elements"):
        function(input_node(TensorType((3,))))


def test_a_mean_is_of_floats() -> None:
    with pytest.raises(
        GraphError, match=r"ops.segment_mean: expected a float tensor, found int32\[3\]; cast"
    ):
        ops.segment_mean(input_node(TensorType((3,), "int32"), ragged()))


def test_batched_gives_a_row_per_call_once() -> None:
    parameter = Parameter(TensorType((3,)))
    x = ops.batched(parameter)
    assert (x.op.name, x.axis) == ("batch", CALL)
    assert ops.batched(x) is x
