"""Runs the kernel of a graph on rows of a batch, and interprets it row by row, to be compared.

A batch has calls, and for every ragged axis a sequence of each call; values of an input are given
as the runtime lays them out, ``[rows, *shape]``. Every scratch and kept buffer starts as NaN (or
as the largest int), so that reading what was never written shows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldbatch.params import Array, SparseRows
from foldbatch.static.backends import BACKENDS, Backend
from foldbatch.static.codegen import Argument, Text, emit
from foldbatch.static.graph import Graph, Node
from foldbatch.static.kernel import load
from foldbatch.static.op import CALL, UNBATCHED, Attrs, Axis
from foldbatch.types import TensorType

NUMPY = BACKENDS["numpy"]


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch for a graph: per input its values, and the lengths of the calls' sequences."""

    calls: int
    values: tuple[Array, ...]
    lengths: Mapping[Axis, Array]

    def count(self, axis: Axis) -> int:
        """Return the rows along an axis."""
        if axis is CALL:
            return self.calls
        return int(self.lengths[axis].sum()) if axis.rank else 1

    def extent(self, axis: Axis, call: int) -> slice:
        """Return the elements of one call's sequence."""
        stop = int(self.lengths[axis][: call + 1].sum())
        return slice(stop - int(self.lengths[axis][call]), stop)


def axes_of(graph: Graph) -> tuple[Axis, ...]:
    """Return the ragged axes of a graph's nodes."""
    nodes = (*graph.inputs, *graph.nodes)
    return tuple(dict.fromkeys(node.axis for node in nodes if node.axis.rank == 2))


def random_rows(
    rng: np.random.Generator,
    graph: Graph,
    calls: int,
    *,
    below: int = 2,
    positive: Collection[Node] = (),
    lengths: Sequence[int] | None = None,
) -> Rows:
    """Return a batch of random rows; integers lie from 0 to `below`, excluded; some sequences are empty."""
    drawn = {axis: np.array(lengths or rng.integers(0, 3, calls), np.int64) for axis in axes_of(graph)}
    rows = Rows(calls, (), drawn)
    values = []
    for x in graph.inputs:
        shape = (rows.count(x.axis), *x.shape) if x.axis.rank else x.shape
        if not x.type.is_float:
            array = rng.integers(0, below, shape)
        elif x in positive:
            array = rng.uniform(0.5, 2.0, shape)
        else:
            array = rng.normal(size=shape)
        values.append(np.asarray(array).astype(x.dtype))
    return Rows(calls, tuple(values), drawn)


def compile_graph(graph: Graph, kept: Collection[Node] = (), backend: Backend = NUMPY) -> Text:
    """Return the kernel text of a graph whose outputs are its results, in the same order."""
    given = {x: Argument("operand", i) for i, x in enumerate(graph.inputs)}
    buffers = {node: Argument("kept", i) for i, node in enumerate(kept)}
    whole = Graph(graph.inputs, (*graph.outputs, *kept))
    return emit("kernel", whole, graph.outputs, given, buffers, (), backend)


def run_graph(graph: Graph, rows: Rows, kept: Collection[Node] = (), backend: Backend = NUMPY) -> list[Array]:
    """Return the outputs as the graph's kernel computes them, then the buffers of `kept` nodes."""
    text = compile_graph(graph, kept, backend)
    kernel = load("test", text, tuple(("value", i) for i in range(len(graph.outputs))), backend)
    buffers = [poisoned(node.type, node.axis, rows) for node in kept]
    results = kernel.function(*[_argument(a, rows, buffers) for a in kernel.arguments])
    return [r.dense() if isinstance(r, SparseRows) else np.array(r) for r in (*results, *buffers)]


def poisoned(type_: TensorType, axis: Axis, rows: Rows) -> Array:
    """Return a buffer of values that no kernel should read."""
    shape = (rows.count(axis), *type_.shape) if axis.rank else type_.shape
    if type_.is_float:
        return np.full(shape, np.nan, type_.dtype)
    return np.full(shape, type_.dtype == "bool" or np.iinfo(type_.dtype).max, type_.dtype)


def _argument(argument: Argument, rows: Rows, buffers: Sequence[Array]) -> Any:
    key = argument.key
    match argument.kind:
        case "operand":
            return rows.values[key]
        case "kept":
            return buffers[key]
        case "scratch":
            return poisoned(key.type, key.axis, rows)
        case "parameter":
            return key.value
        case "rows":
            return rows.count(key)
    counts = rows.lengths[key]
    return {
        "counts": counts,
        "starts": np.cumsum(counts) - counts,
        "owner": np.repeat(np.arange(rows.calls), counts),
    }[argument.kind]


def interpret(graph: Graph, rows: Rows) -> list[Array]:
    """Return the outputs as op by op, row by row evaluation gives them, in float64.

    A batch axis that an op leaves is summed over: ragged ones call by call, calls altogether.
    """
    known = {x: _as_float(value) for x, value in zip(graph.inputs, rows.values, strict=True)}
    for node in graph.nodes:
        known[node] = _interpret(node, known, rows)
    return [known[node] for node in graph.outputs]


def _as_float(value: Any) -> Array:
    array = np.asarray(value)
    return array.astype("float64") if array.dtype.kind == "f" else array


def _interpret(node: Node, known: Mapping[Node, Array], rows: Rows) -> Array:
    attrs = dict(node.attrs)
    if str(attrs.get("dtype", "")).startswith("float"):
        attrs["dtype"] = "float64"
    along = max((node.axis, *(x.axis for x in node.inputs)), key=lambda axis: axis.rank)
    if along is UNBATCHED:
        return _as_float(node.op.evaluate(attrs, *(known[x] for x in node.inputs)))
    if node.op.whole:
        return _interpret_whole(node, attrs, [known[x] for x in node.inputs], along, rows)
    parts = []
    for row in range(rows.count(along)):
        operands = [_row(x, known[x], along, row, rows) for x in node.inputs]
        parts.append(_as_float(node.op.evaluate(attrs, *operands)))
    dtype = "float64" if node.type.is_float else node.dtype
    whole = np.array(parts, dtype).reshape(rows.count(along), *node.shape)
    if node.axis is along:
        return whole
    if node.axis is UNBATCHED:
        return np.asarray(whole.sum(0, dtype))
    return np.array(
        [whole[rows.extent(along, call)].sum(0, dtype) for call in range(rows.calls)], dtype
    ).reshape(rows.calls, *node.shape)


def _interpret_whole(node: Node, attrs: Attrs, xs: Sequence[Array], along: Axis, rows: Rows) -> Array:
    """Evaluate an op that takes the sequence of a call at once, call by call."""
    parts = [
        node.op.evaluate(attrs, *(x[rows.extent(along, call)] for x in xs)) for call in range(rows.calls)
    ]
    dtype = "float64" if node.type.is_float else node.dtype
    joined = np.concatenate(parts) if node.axis is along and parts else np.array(parts, dtype)
    return joined.astype(dtype).reshape(rows.count(node.axis), *node.shape)


def _row(x: Node, value: Array, along: Axis, row: int, rows: Rows) -> Array:
    if x.axis is UNBATCHED:
        return value
    if x.axis is along:
        return np.asarray(value[row])
    owner = np.repeat(np.arange(rows.calls), rows.lengths[along])
    return np.asarray(value[owner[row]])
