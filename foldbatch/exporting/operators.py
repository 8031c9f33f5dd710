"""Operators: what each op of a cell is in ONNX, one paragraph each.

A paragraph gets the scope, the node, and the names of the node's operands; it writes ONNX nodes and returns
the name of the result. `TRANSLATIONS` is the table. `REFUSED` names the ops without an entry, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from foldbatch.exporting.elementwise import TRANSLATIONS, onnx_type, translation
from foldbatch.exporting.writer import Scope, first_axis
from foldbatch.params import Array
from foldbatch.static.graph import CONSTANT, PARAMETER, Graph, Node
from foldbatch.static.op import CALL, UNBATCHED

OF_GRADIENTS = "only graphs of gradients have it"
REFUSED = {
    "random": "it draws random numbers",
    "sum_batch": OF_GRADIENTS,
    "sum_outer": OF_GRADIENTS,
    "sum_outer_by": OF_GRADIENTS,
    "sum_rows": OF_GRADIENTS,
    "when_training": "the graph of inference has one of its operands instead",
}
LAST = np.iinfo(np.int64).min  # where a slice that runs backwards ends, to hold the first element


# -- ops that move elements


@translation
def _reshape(at: Scope, node: Node, x: str) -> str:
    return at.reshape(x, node.shape, node.axis)


@translation
def _transpose(at: Scope, node: Node, x: str) -> str:
    first = first_axis(node)
    return at.add("Transpose", x, perm=[*range(first), *(first + axis for axis in node.attrs["axes"])])


def _section(at: Scope, x: str, axis: int, start: int, stop: int, step: int = 1) -> str:
    return at.add("Slice", x, *(at.constant([number], "int64") for number in (start, stop, axis, step)))


@translation
def _slice(at: Scope, node: Node, x: str) -> str:
    axis, start, stop = (node.attrs[name] for name in ("axis", "start", "stop"))
    return _section(at, x, first_axis(node) + axis, start, stop)


@translation
def _flip(at: Scope, node: Node, x: str) -> str:
    return _section(at, x, first_axis(node) + node.attrs["axis"], -1, LAST, -1)


@translation
def _pad(at: Scope, node: Node, x: str) -> str:
    width = [0] * (2 * (first_axis(node) + node.ndim))
    axis = first_axis(node) + node.attrs["axis"]
    width[axis], width[axis + len(width) // 2] = node.attrs["before"], node.attrs["after"]
    return at.add("Pad", x, at.constant(width, "int64"))


@translation
def _concat(at: Scope, node: Node, *xs: str) -> str:
    parts = [at.along(x, source, node.axis) for x, source in zip(xs, node.inputs, strict=True)]
    return at.add("Concat", *parts, axis=first_axis(node) + node.attrs["axis"])


@translation
def _stack(at: Scope, node: Node, *xs: str) -> str:
    axis = first_axis(node) + node.attrs["axis"]
    place = at.constant([axis], "int64")
    parts = [at.along(x, source, node.axis) for x, source in zip(xs, node.inputs, strict=True)]
    return at.add("Concat", *(at.add("Unsqueeze", part, place) for part in parts), axis=axis)


@translation
def _broadcast_to(at: Scope, node: Node, x: str) -> str:
    source = node.inputs[0]
    aligned = at.reshape(x, (1,) * (node.ndim - source.ndim) + source.shape, source.axis)
    return at.add("Expand", aligned, at.constant([1] * first_axis(node) + [*node.shape], "int64"))


# -- reductions over instance axes


def _places(at: Scope, node: Node, axes: tuple[int, ...]) -> str:
    return at.constant([first_axis(node) + axis for axis in axes], "int64")


@translation
def _sum(at: Scope, node: Node, x: str) -> str:
    return at.add("ReduceSum", x, _places(at, node, node.attrs["axes"]), keepdims=0)


@translation
def _max(at: Scope, node: Node, x: str) -> str:
    return at.add("ReduceMax", x, _places(at, node, (node.attrs["axis"],)), keepdims=0)


@translation
def _argmax(at: Scope, node: Node, x: str) -> str:
    return at.add("ArgMax", x, axis=first_axis(node) + node.attrs["axis"], keepdims=0)


@translation
def _one_hot(at: Scope, node: Node, x: str) -> str:
    column = at.add("Unsqueeze", x, at.constant([-1], "int64"))
    numbers = at.constant(np.arange(node.attrs["size"]), node.inputs[0].dtype)
    return at.add("Cast", at.add("Equal", column, numbers), to=onnx_type(node.dtype))


@translation
def _softmax(at: Scope, node: Node, x: str) -> str:
    return at.add("Softmax", x, axis=first_axis(node) + node.attrs["axis"])


def _top_and_rest(at: Scope, node: Node, x: str, place: int) -> tuple[str, str]:
    """Return the maximum along an axis, and logsumexp(x) less that, as `ops.reduce.top_and_rest`.

    Runtimes' own functions of this kind may leave NaN out.
    """
    axes = at.constant([place], "int64")
    top = at.add("ReduceMax", x, axes, keepdims=1)
    below = at.add("Where", at.add("Equal", x, top), at.constant(0, node.dtype), at.add("Sub", x, top))
    return top, at.add("Log", at.add("ReduceSum", at.add("Exp", below), axes, keepdims=1))


def _log_chances(at: Scope, node: Node, x: str, place: int) -> str:
    top, rest = _top_and_rest(at, node, x, place)
    return at.add("Sub", at.add("Sub", x, top), rest)


@translation
def _log_softmax(at: Scope, node: Node, x: str) -> str:
    return _log_chances(at, node, x, first_axis(node) + node.attrs["axis"])


@translation
def _logsumexp(at: Scope, node: Node, x: str) -> str:
    axis = first_axis(node) + node.attrs["axis"]
    return at.add("Squeeze", at.add("Add", *_top_and_rest(at, node, x, axis)), at.constant([axis], "int64"))


@translation
def _cross_entropy(at: Scope, node: Node, logits: str, label: str) -> str:
    last = at.constant([-1], "int64")
    rows = at.along(logits, node.inputs[0], node.axis)
    labels = at.along(label, node.inputs[1], node.axis)
    place = at.add("Unsqueeze", at.add("Cast", labels, to=onnx_type("int64")), last)
    picked = at.add("GatherElements", _log_chances(at, node, rows, -1), place, axis=-1)
    return at.add("Neg", at.add("Squeeze", picked, last))


# -- products and look-ups


@translation
def _linear(at: Scope, node: Node, x: str, weight: str) -> str:
    return at.add("MatMul", x, weight)


@translation
def _matmul(at: Scope, node: Node, a: str, b: str) -> str:
    return at.add("MatMul", a, b)


@translation
def _gather(at: Scope, node: Node, table: str, ids: str) -> str:
    return at.add("Gather", table, ids, axis=0)


@translation
def _linear_by(at: Scope, node: Node, x: str, table: str, ids: str) -> str:
    source = node.inputs[0]
    matrix = at.reshape(x, (source.type.size // max(source.shape[-1], 1), source.shape[-1]), source.axis)
    product = at.add("MatMul", matrix, at.add("Gather", table, ids, axis=0))
    return at.reshape(product, node.shape, node.axis)


@translation
def _batch(at: Scope, node: Node, x: str) -> str:
    return at.spread(x, node.shape, node.axis)


@translation
def _repeat(at: Scope, node: Node, x: str) -> str:
    return at.add("Gather", x, at.owners[node.axis], axis=0)


# -- ops on each call's sequence: elements are scattered to the rows of their calls


def _scattered(at: Scope, source: Node, x: str, start: Any, reduction: str) -> str:
    """Return, for each call, a number to start from and the elements of its sequence, reduced."""
    rows = at.spread(at.constant(np.full(source.shape, start, source.dtype)), source.shape, CALL)
    places = at.add("Unsqueeze", at.owners[source.axis], at.constant([1], "int64"))
    return at.add("ScatterND", rows, places, x, reduction=reduction)


def _of_call(at: Scope, source: Node, rows: str) -> str:
    """Return, for each element, the row of its call."""
    return at.add("Gather", rows, at.owners[source.axis], axis=0)


def _least(dtype: str) -> Any:
    return -np.inf if dtype.startswith("float") else np.iinfo(dtype).min


def _lengths(at: Scope, source: Node) -> str:
    """Return how many elements each call's sequence has: ``[n] int64``."""
    ones = at.add("Expand", at.constant(1, "int64"), at.counts[source.axis])
    none = at.add("Expand", at.constant(0, "int64"), at.counts[CALL])
    places = at.add("Unsqueeze", at.owners[source.axis], at.constant([1], "int64"))
    return at.add("ScatterND", none, places, ones, reduction="add")


def _positions(at: Scope, source: Node) -> str:
    """Return how many elements of its sequence stand before each element: ``[m] int64``."""
    owners, zero = at.owners[source.axis], at.constant(0, "int64")
    starts = at.add("CumSum", _lengths(at, source), zero, exclusive=1)
    ones = at.add("Expand", at.constant(1, "int64"), at.counts[source.axis])
    return at.add("Sub", at.add("CumSum", ones, zero, exclusive=1), at.add("Gather", starts, owners, axis=0))


@translation
def _segment_sum(at: Scope, node: Node, x: str) -> str:
    return _scattered(at, node.inputs[0], x, 0, "add")


@translation
def _segment_max(at: Scope, node: Node, x: str) -> str:
    source, least = node.inputs[0], _least(node.dtype)
    top = _scattered(at, source, x, least, "max")
    without = at.add(
        "Equal", at.reshape(_lengths(at, source), (1,) * node.ndim, CALL), at.constant(0, "int64")
    )
    return at.add("Where", without, at.constant(0, node.dtype), top)


@translation
def _segment_is_max(at: Scope, node: Node, x: str) -> str:
    source = node.inputs[0]
    position = at.reshape(_positions(at, source), (1,) * source.ndim, source.axis)
    top = _of_call(at, source, _scattered(at, source, x, _least(source.dtype), "max"))
    far = at.constant(np.iinfo("int64").max)
    candidates = at.add("Where", at.add("Equal", x, top), position, far)
    places = at.add("Unsqueeze", at.owners[source.axis], at.constant([1], "int64"))
    start = at.spread(far, source.shape, CALL)
    first = at.add("ScatterND", start, places, candidates, reduction="min")
    return at.add("Equal", position, _of_call(at, source, first))


@translation
def _segment_position(at: Scope, node: Node, x: str) -> str:
    position = at.reshape(_positions(at, node.inputs[0]), (1,) * node.ndim, node.axis)
    return at.add("Expand", position, at.constant([1, *node.shape], "int64"))


@translation
def _segment_softmax(at: Scope, node: Node, x: str) -> str:
    source = node.inputs[0]
    top = _of_call(at, source, _scattered(at, source, x, -np.inf, "max"))
    above = at.add("Exp", at.add("Sub", x, top))
    return at.add("Div", above, _of_call(at, source, _scattered(at, source, above, 0, "add")))


# -- graphs of ops


def write(at: Scope, graph: Graph, names: Mapping[Node, str]) -> list[str]:
    """Write the nodes of a graph, and return the names of its outputs, each with rows.

    What depends on parameters and constants alone is computed here, and becomes a constant.

    Args:
        at: the scope.
        graph: what to compute; all of its ops are in `TRANSLATIONS`.
        names: of the graph's inputs that have names; the others are not read.
    """
    name_of, folded = dict(names), dict[Node, Array]()
    for node in graph.nodes:
        if node.op is PARAMETER:
            folded[node] = node.attrs["parameter"].value
        elif node.op is CONSTANT:
            folded[node] = node.attrs["value"]
        elif all(x in folded for x in node.inputs) and node.axis is UNBATCHED:
            value = node.op.evaluate(node.attrs, *(folded[x] for x in node.inputs))
            folded[node] = np.asarray(value, node.dtype)
        else:
            for x in node.inputs:
                if x not in name_of:
                    name_of[x] = at.constant(folded[x])
            name_of[node] = TRANSLATIONS[node.op.name](at, node, *(name_of[x] for x in node.inputs))
    results = []
    for node in graph.outputs:
        if node not in name_of:
            name_of[node] = at.spread(at.constant(folded[node]), node.shape, CALL)
        results.append(name_of[node])
    return results
