"""`when_training`: derivatives on every sample, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.errors import GraphError
from foldbatch.static import ops
from foldbatch.static.autodiff import jvp, vjp
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, input_node
from foldbatch.static.op import CALL, UNBATCHED, ragged
from foldbatch.types import TensorType

V = TensorType((3,), "float64")


def test_left_in_a_graph_it_means_training() -> None:
    a, b = input_node(V), input_node(V)
    y = ops.when_training(a, b)
    assert evaluate(Graph((a, b), (y,)), [np.ones(3), np.zeros(3)])[0].tolist() == [1, 1, 1]
    g = input_node(V)
    assert vjp([y], [g], [a, b]) == [g, None]
    (zero,) = jvp([y], [b], [g])
    assert zero is not None
    assert evaluate(Graph((g,), (zero,)), [np.ones(3)])[0].tolist() == [0, 0, 0]


def test_it_runs_along_the_widest_axis() -> None:
    unbatched, call, element = (input_node(V, axis) for axis in (UNBATCHED, CALL, ragged()))
    assert ops.when_training(unbatched, call).axis is CALL
    assert ops.when_training(element, call).axis is element.axis
    assert ops.when_training(unbatched, unbatched).axis is UNBATCHED


@pytest.mark.parametrize("other", [TensorType((2,), "float64"), TensorType((3,)), TensorType((), "float64")])
def test_both_are_of_one_type(other: TensorType) -> None:
    with pytest.raises(
        GraphError, match="ops.when_training: expected two tensors of one type, found float64"
    ):
        ops.when_training(input_node(V), input_node(other))


def test_a_number_takes_the_dtype_of_the_other() -> None:
    x = input_node(TensorType((), "float64"))
    assert ops.when_training(x, 1).dtype == ops.when_training(0.5, x).dtype == "float64"
