"""Runs a kernel of a graph on rows of a batch, and interprets it row by row, to be compared.

A batch has calls, and for every ragged axis a sequence of each call; values of an input are given
as the runtime lays them out, ``[rows, *shape]``. Every scratch and kept buffer starts as NaN (or
as the largest int), so that reading what was never written shows.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldbatch.engines.numpy.spelling import OVERWRITES
from foldbatch.params.parameters import Array
from foldbatch.static.graph import SOURCES, Graph, Node, is_view
from foldbatch.static.op import CALL, UNBATCHED, Attrs, Axis
from foldbatch.static.routines import Stage, Target, routine_of
from foldbatch.static.statements import Binding, Routine
from tests.engines.numpy.launching import At, Batch, poisoned
from tests.strategies import Problem

TARGET = Target(overwrites=OVERWRITES)


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch for a graph: per input its values, and the lengths of the calls' sequences."""

    calls: int
    values: tuple[Array, ...]
    lengths: Mapping[Axis, Array]

    def count(self, axis: Axis) -> int:
        if axis is CALL:
            return self.calls
        return int(self.lengths[axis].sum()) if axis.rank else 1

    def extent(self, axis: Axis, call: int) -> slice:
        stop = int(self.lengths[axis][: call + 1].sum())
        return slice(stop - int(self.lengths[axis][call]), stop)


def axes_of(graph: Graph) -> tuple[Axis, ...]:
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


def stage_of_graph(graph: Graph, kept: Collection[Node] = ()) -> Stage:
    """Return a graph as a stage whose results are its outputs, in order."""
    computed = frozenset(node for node in graph.nodes if node.op not in SOURCES and node not in kept)
    kinds = {0: "kept", 1: "operand", 2: "operand"}  # what is the same for all rows is a buffer for the batch
    given = {x: Binding(kinds[x.axis.rank], len(kept) + i) for i, x in enumerate(graph.inputs)}
    kinds = {0: "gradient", 1: "value", 2: "feed"}
    results = tuple(((kinds[node.axis.rank], i), node) for i, node in enumerate(graph.outputs))
    numbers = {node: i for i, node in enumerate(kept)}
    return Stage("kernel", results, numbers, given, computed, frozenset(), axes_of(graph))


def routine_of_graph(graph: Graph, kept: Collection[Node] = (), target: Target | None = None) -> Routine:
    return routine_of(stage_of_graph(graph, kept), TARGET if target is None else target)


def run_graph(
    graph: Graph, rows: Rows, kept: Collection[Node] = (), levels: Sequence[tuple[int, int]] = ()
) -> list[Array]:
    """Return the outputs as a kernel of the graph computes them, then the buffers of `kept` nodes.

    Args:
        graph: of at most one level, if it sums over the batch.
        rows: the batch.
        kept: nodes that have buffers for the whole batch.
        levels: the first call of each level and the one after the last; of none, all calls are one.
    """
    routine = routine_of_graph(graph, kept)
    offsets = [np.cumsum([0, *rows.lengths[axis]]).tolist() for axis in axes_of(graph)]
    slots = {}
    for i, (x, array) in enumerate(zip(graph.inputs, rows.values, strict=True), len(kept)):
        slots["operand" if x.axis.rank else "kept", i] = At(array if x.axis.rank else array[None], 0)
    buffers = [poisoned(node.type, rows.count(node.axis)) for node in kept]
    slots |= {("kept", i): At(buffer) for i, buffer in enumerate(buffers)}
    outputs = [poisoned(node.type, rows.count(node.axis)) for node in graph.outputs]
    results = {
        binding: At(array, 0, stores=True)
        for (binding, _), array in zip(routine.results, outputs, strict=True)
    }
    Batch(slots, results, offsets).run(routine, levels or [(0, rows.calls)])
    nodes = (*graph.outputs, *kept)
    return [
        array if node.axis.rank else array[0] for node, array in zip(nodes, (*outputs, *buffers), strict=True)
    ]


def check_kernel(problem: Problem, random: Any) -> None:
    """Check a kernel of a random graph, of whose nodes some are kept, beside the interpreter."""
    graph = problem.graph
    rows = random_rows(np.random.default_rng(problem.seed), graph, 3)
    nodes = [node for node in graph.nodes if node.inputs and not is_view(node) and node.op.name != "sum_rows"]
    kept = tuple(node for node in nodes if random.random() < 0.2)
    with np.errstate(all="ignore"):
        expected = interpret(Graph(graph.inputs, (*graph.outputs, *kept)), rows)
        found = run_graph(graph, rows, kept)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


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
