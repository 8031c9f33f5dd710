"""Functions of symbolic tensors beside NumPy's of the same name, on plain arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np

from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, input_node, verify
from foldbatch.types import TensorType

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(2, 3)), RNG.normal(size=(2, 3))
CUBE = RNG.normal(size=(2, 3, 4))


def run(function: Callable[..., Any], *arrays: Any) -> Any:
    """Return what a function of symbolic tensors gives on arrays, having checked its type."""
    arrays = tuple(np.asarray(array) for array in arrays)
    inputs = tuple(input_node(TensorType(array.shape, array.dtype.name)) for array in arrays)
    result = function(*inputs)
    nodes = result if isinstance(result, tuple) else (result,)
    found = evaluate(verify(Graph(inputs, nodes)), list(arrays))
    for node, value in zip(nodes, found, strict=True):
        assert np.shape(value) == node.shape
        assert np.asarray(value).dtype == node.dtype
    return tuple(found) if isinstance(result, tuple) else found[0]


def check(function: Callable[..., Any], expected: Callable[..., Any], *arrays: Any) -> None:
    """Check that a symbolic function gives what a NumPy function gives, shape and dtype kind included."""
    found, right = run(function, *arrays), np.asarray(expected(*arrays))
    np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-14)
    assert (found.shape, found.dtype.kind) == (right.shape, right.dtype.kind)
