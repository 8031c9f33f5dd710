"""The reference interpreter: one instance of a graph, op by op, in float64. The oracle.

It knows nothing of batches, schedules, buffers or generated code. A tensor along a ragged axis
is a list of instances; an op that leaves a ragged axis sums over it, unless the op takes a sequence
as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from foldbatch.params.parameters import Array
from foldbatch.static.graph import Graph, Node
from foldbatch.static.op import Attrs, Axis

Value = Any  # an array, or a list of arrays along a ragged axis
Watch = Callable[[Node, Sequence[Value], Value], None]


class IdError(IndexError):
    """An op was given an `id` that is negative, or not below `size`, the rows that it chooses from."""

    def __init__(self, id: int, size: int) -> None:
        super().__init__(id, size)
        self.id, self.size = id, size


def evaluate(
    graph: Graph,
    values: Sequence[Value],
    dtype: str | None = "float64",
    watch: Watch | None = None,
    fixed: Mapping[Node, Value] = MappingProxyType({}),
) -> list[Value]:
    """Return the outputs for one instance of the inputs.

    Args:
        graph: what to compute.
        values: one array per input, without the batch axis; a list of them along a ragged axis.
        dtype: the precision of all floats; None for that of each tensor.
        watch: called after each op with its node, the operands and the result.
        fixed: the values of nodes that need not be computed, in that precision.

    Raises:
        IdError: when an id is out of range.
    """
    value_of: dict[Node, Value] = dict(fixed)
    lengths: dict[Axis, int] = {}
    for node, value in zip(graph.inputs, values, strict=True):
        if node.axis.rank == 2:
            value_of[node] = [_as_float(x, dtype or node.dtype) for x in value]
            lengths[node.axis] = len(value_of[node])
        else:
            value_of[node] = _as_float(value, dtype or node.dtype)
    for node in graph.nodes:
        if node in fixed:
            continue
        operands = [value_of[x] for x in node.inputs]
        value_of[node] = _evaluate_node(node, operands, lengths, dtype or node.dtype)
        if watch is not None:
            watch(node, operands, value_of[node])
    return [value_of[node] for node in graph.outputs]


def _as_float(value: object, dtype: str) -> Array:
    array = np.asarray(value)
    return array.astype(dtype) if array.dtype.kind == "f" else array


def _joined(elements: list[Array], source: Node) -> Array:
    return np.array(elements) if elements else np.zeros((0, *source.shape), source.dtype)


def _evaluate_node(node: Node, xs: list[Value], lengths: dict[Axis, int], dtype: str) -> Value:
    """Return a node's value: of one instance, or a list of values along a sequence's axis."""
    attrs = node.attrs
    if str(attrs.get("dtype", "")).startswith("float"):
        attrs = {**attrs, "dtype": dtype}
    spread = (
        node.axis if node.axis.rank == 2 else next((x.axis for x in node.inputs if x.axis.rank == 2), None)
    )
    if spread is None:
        return _evaluate_op(node, attrs, xs, dtype)
    if node.op.whole:
        operands = [
            _joined(x, source) if source.axis is spread else x
            for x, source in zip(xs, node.inputs, strict=True)
        ]
        value = _as_float(node.op.evaluate(attrs, *operands), dtype)
        return list(value) if node.axis is spread else value
    elements = []
    for i in range(lengths[spread]):
        row = [x[i] if source.axis is spread else x for x, source in zip(xs, node.inputs, strict=True)]
        elements.append(_evaluate_op(node, attrs, row, dtype))
    if node.axis is spread:
        return elements
    return np.asarray(sum(elements, np.zeros(node.shape, dtype if node.type.is_float else node.dtype)))


def _evaluate_op(node: Node, attrs: Attrs, xs: Sequence[Value], dtype: str) -> Array:
    """Return the op's value for one instance. Ids are checked: NumPy counts negative ones from the end."""
    if node.op.bound is not None:
        place, size = node.op.bound(tuple(x.type for x in node.inputs), attrs)
        ids = np.asarray(xs[place])
        wrong = (ids < 0) | (ids >= size)
        if wrong.any():
            raise IdError(int(ids[wrong][0]), size)
    return _as_float(node.op.evaluate(attrs, *xs), dtype)
