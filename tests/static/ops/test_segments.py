"""Ops on whole sequences: derivatives on every sample, and what they make of ties, NaN and nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from foldbatch.static.autodiff import vjp
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, apply, constant, input_node
from foldbatch.static.op import CALL, ragged
from foldbatch.types import TensorType
from tests.static.run_kernel import Rows, run_graph

ELEMENTS = ragged()
X = input_node(TensorType((2,), "float64"), ELEMENTS)


def _run(y: Node, x: Node, sequences: list[Any]) -> list[Any]:
    """Return what the kernel yields per call or element, which must be what the interpreter yields."""
    lengths = np.array([len(s) for s in sequences])
    values = np.concatenate([np.asarray(s, x.dtype).reshape(-1, *x.shape) for s in sequences])
    (found,) = run_graph(Graph((x,), (y,)), Rows(len(sequences), (values,), {x.axis: lengths}))
    each = [evaluate(Graph((x,), (y,)), [[np.asarray(v, x.dtype) for v in s]])[0] for s in sequences]
    expected = each if y.axis is CALL else [v for sequence in each for v in sequence]
    np.testing.assert_allclose(found, np.array(expected).reshape(found.shape), rtol=1e-14)
    return found.tolist()  # type: ignore[no-any-return]


def test_of_equal_elements_the_first_is_the_maximum_and_takes_the_gradient() -> None:
    """As of ops.max: one subgradient, the same in every batch."""
    sequences = [[[7, 1], [7, 2], [3, 2]], [], [[0, 0], [0, 0]], []]
    first = [[1, 0], [0, 1], [0, 0], [1, 1], [0, 0]]
    assert _run(apply("segment_is_max", X), X, sequences) == [[bool(v) for v in row] for row in first]
    (g,) = vjp([apply("segment_max", X)], [constant(np.ones(2))], [X])
    assert g is not None
    assert _run(g, X, sequences) == first


def test_a_nan_is_greatest() -> None:
    """As to NumPy; the gradient shows it too."""
    x = input_node(TensorType((), "float64"), ELEMENTS)
    sequences = [[1.0, np.nan, 2.0, np.nan], [3.0, 2.0]]
    found = _run(apply("segment_max", x), x, sequences)
    assert np.isnan(found[0])
    assert found[1] == 3
    assert _run(apply("segment_is_max", x), x, sequences) == [False, True, False, False, True, False]


def test_softmax_of_large_numbers_does_not_overflow() -> None:
    with np.errstate(over="raise", invalid="raise"):
        found = _run(apply("segment_softmax", X), X, [[[1e4, -1e4], [1e4, 1e4]], [[-1e4, 0]]])
    assert found == [[0.5, 0], [0.5, 1], [1, 1]]
