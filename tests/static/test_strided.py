"""Views as offsets and strides."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.static import ops
from foldbatch.static.graph import Node, apply, input_node
from foldbatch.static.strided import access
from foldbatch.types import TensorType


def _view(data: st.DataObject, x: Node) -> Node:
    kind = data.draw(st.sampled_from(["slice", "transpose", "reshape", "broadcast"]))
    if kind == "slice" and x.ndim:
        axis = data.draw(st.integers(0, x.ndim - 1))
        start = data.draw(st.integers(0, x.shape[axis] - 1))
        stop = data.draw(st.integers(start + 1, x.shape[axis]))
        return apply("slice", x, axis=axis, start=start, stop=stop)
    if kind == "transpose":
        return apply("transpose", x, axes=tuple(data.draw(st.permutations(range(x.ndim)))))
    if kind == "reshape":
        return apply(
            "reshape", x, shape=data.draw(st.sampled_from([(x.type.size,), (1, *x.shape), (*x.shape, 1)]))
        )
    return apply("broadcast_to", x, shape=(2, *x.shape)) if x.ndim < 4 else x


@given(st.data())
@settings(max_examples=55)
def test_elements_lie_where_numpy_finds_them(data: st.DataObject) -> None:
    """Through any number of views; where NumPy copies, the copy is where they lie."""
    x = input_node(TensorType(data.draw(st.sampled_from([(2, 3), (4,), (2, 1, 3), ()]))))
    array = np.arange(x.type.size).reshape(x.shape)
    node, arrays = x, {x: array}
    for _ in range(data.draw(st.integers(0, 5))):
        before = node
        node = _view(data, node)
        if node is not before:
            arrays[node] = np.asarray(node.op.evaluate(node.attrs, arrays[before]))
    found = access(node)
    memory = np.ascontiguousarray(arrays[found.root]).reshape(-1)
    at = np.indices(node.shape).reshape(node.ndim, node.type.size)
    numbers = found.offset + sum(
        (i * stride for i, stride in zip(at, found.strides, strict=True)), np.zeros(at.shape[1], int)
    )
    np.testing.assert_array_equal(memory[numbers].reshape(node.shape), arrays[node])


def test_a_reshape_that_copies_is_a_root() -> None:
    """Its elements lie in no order that strides could tell."""
    x = input_node(TensorType((2, 3)))
    flat = ops.reshape(ops.transpose(x), 6)
    assert access(flat).root is flat
    assert access(flat[2:]).root is flat
    assert access(ops.transpose(x)).root is x
