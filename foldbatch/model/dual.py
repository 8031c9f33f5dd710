"""Dual programs: every value with its tangent, in the cells, arenas and traces of the program itself.

When parameters move along tangents, every value that depends on them moves, too. Such a value x of
shape ``[*]`` becomes the pair (x, dx), ``[2, *]``, under the same number and at the same row, so
traces and schedules stay as they are. The losses of the dual program are the tangents of the
losses; its metrics are the losses. So its forward pass yields a directional derivative, and its
gradients are the Hessian times the tangents.

Data may move, too: then a cell reads the tangents of its floats as further data, behind its own, which
join a batch when it runs. Results may take the place of losses: they are pairs, and a cotangent (0, u) of
a pair asks for the gradients of the inner product of u with the result's tangent.

Source: Pearlmutter 1994 (Fast exact multiplication by the Hessian), section 3: reverse mode over
forward mode.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from foldbatch.model.drafts import Feed
from foldbatch.model.model import Model, Sources, acted_on, restaged
from foldbatch.params.parameters import Array, Parameter
from foldbatch.static.autodiff import jvp, trainable
from foldbatch.static.cell import transformed
from foldbatch.static.cellgraph import CellGraph
from foldbatch.static.graph import Node, apply, constant, input_node, parameter_node, substitute
from foldbatch.static.passes.simplify import in_phase
from foldbatch.types import VOID, TensorType

LOSS = "loss"
SETTLED = partial(in_phase, training=False)  # on a graph: what inference computes


def dual(
    model: Model,
    tangents: Mapping[Parameter, Parameter],
    *,
    results: bool = False,
    inputs: bool = False,
    training: bool = True,
) -> Model:
    """Return the dual of a model; traces and parameters are the same.

    Its losses are the tangents of the model's losses. Its only metric, ``LOSS``, is the model's losses. Its
    results are void.

    Args:
        model: the model.
        tangents: for each trainable parameter, the one that holds its tangent.
        results: whether results take the place of losses and metrics, of which there are none then: each
            tensor of floats in a result is a pair ``[2, *shape]``, and gradients come from cotangents of it.
        inputs: whether the floats in examples move, too, see `FeedTangents`; then gradients of these are
            yielded beside those of parameters.
        training: whether the model computes what it trains, where that differs from inference.
    """
    graphs = [
        (cell.graph if training else transformed(cell.built, SETTLED)).named(cell.name)
        for cell in model.cells
    ]
    if results:
        graphs = [replace(graph, losses=(), metrics=()) for graph in graphs]
    data = [_floats(graph) if inputs else () for graph in graphs]
    acting = [
        bool(feeds or trainable(graph.outputs + graph.losses))
        for graph, feeds in zip(graphs, data, strict=True)
    ]
    ends = model.results if results else frozenset[int]()
    acted = acted_on(model.reads, model.writes, acting) | ends
    moving = {arena for arena in acted if model.arenas[arena].is_float}
    duals = []
    for graph, signature, feeds in zip(graphs, model.signatures, data, strict=True):
        operands = {
            i: 1 if len(operand.columns) > 1 else 0
            for i, operand in enumerate(signature.operands)
            if operand.arena in moving
        }
        outputs = {j for j, arena in enumerate(signature.outputs) if arena in moving}
        duals.append(dual_graph(graph, operands, outputs, tangents, feeds))
    wanted = [
        bool(feeds or trainable(graph.outputs + graph.losses))
        for graph, feeds in zip(duals, data, strict=True)
    ]
    sources = Sources(losses=not results, arenas=ends)
    return replace(
        restaged(model, duals, sources, wanted, [*map(frozenset, data)]),
        result=model.result if results else VOID,
        arenas=tuple(
            TensorType((2, *type_.shape), type_.dtype) if arena in moving else type_
            for arena, type_ in enumerate(model.arenas)
        ),
        losses=tuple((LOSS,) * len(graph.losses) for graph in duals),
        metrics=tuple((LOSS,) * len(graph.metrics) for graph in duals),
        labels=((),) * len(duals),
        marks=((),) * len(duals),
        feeds=tuple(
            (*cell_feeds, *(Feed(cell_feeds[i].type, "tangent", "") for i in feeds))
            for cell_feeds, feeds in zip(model.feeds, data, strict=True)
        ),
    )


def _floats(graph: CellGraph) -> tuple[int, ...]:
    """Return the numbers of a cell's feeds of floats."""
    return tuple(i for i, x in enumerate(graph.feeds) if x.type.is_float)


def dual_graph(
    graph: CellGraph,
    operands: Mapping[int, int],
    outputs: Collection[int],
    tangents: Mapping[Parameter, Parameter],
    feeds: Sequence[int] = (),
) -> CellGraph:
    """Return a cell's graph on pairs of values and tangents; the tangents of `feeds` are further feeds."""
    inputs, values, moving = list(graph.operands), dict[Node, Node](), dict[Node, Node]()
    data = {graph.feeds[i]: input_node(graph.feeds[i].type, graph.feeds[i].axis, "tangent") for i in feeds}
    for i, axis in operands.items():
        x = graph.operands[i]
        shape = (*x.shape[:axis], 2, *x.shape[axis:])
        inputs[i] = input_node(TensorType(shape, x.dtype), x.axis, "pair")
        before = (slice(None),) * axis
        values[x] = inputs[i][(*before, 0)]
        moving[values[x]] = inputs[i][(*before, 1)]
    results = substitute(graph.outputs + graph.losses, values)
    moving |= data
    moving |= {node: parameter_node(tangents[node.attrs["parameter"]]) for node in trainable(results)}
    moved = jvp(results, list(moving), list(moving.values()))
    pairs = list(zip(results, moved, strict=True))
    losses = pairs[len(graph.outputs) :]
    return CellGraph(
        graph.name,
        tuple(inputs),
        (*graph.feeds, *data.values()),
        tuple(
            _paired(*pair) if j in outputs else pair[0] for j, pair in enumerate(pairs[: len(graph.outputs)])
        ),
        tuple(dy for _, dy in losses if dy is not None),
        tuple(y for y, _ in losses),
    )


def _paired(y: Node, dy: Node | None) -> Node:
    if dy is None:
        dy = apply("broadcast_to", constant(0, y.dtype), shape=y.shape)
    return apply("concat", *(apply("reshape", x, shape=(1, *y.shape)) for x in (y, dy)), axis=0)


@dataclass(frozen=True, slots=True)
class FeedTangents:
    """The directions in which the floats of a batch's examples move."""

    # by cell and feed, ``[n, *shape]`` in the order of calls, example by example; zeros where there is none
    columns: Mapping[tuple[int, int], Array]
    firsts: Sequence[NDArray[np.int64]]  # per cell ``[examples + 1]``: the first call of each example


def with_tangents(
    feeds: Sequence[tuple[Array, ...]],
    model: Model,
    tangents: FeedTangents,
    first: int,
    orders: Sequence[NDArray[np.int64]],
) -> tuple[tuple[Array, ...], ...]:
    """Return the data of all cells of a part of a batch, with the tangents that the dual model reads.

    Args:
        feeds: per cell, the data of its own, ``[n, ...]``.
        model: the dual.
        tangents: those of the whole batch.
        first: the number of the part's first example in the batch.
        orders: per cell ``[n]``: the calls of the part in the order of the data.
    """
    return tuple(
        (*columns, *(_column(tangents, (k, i), column, first, orders[k]) for i, column in moved))
        for k, columns in enumerate(feeds)
        for moved in [[(i, x) for i, x in enumerate(columns) if model.feeds[k][i].type.is_float]]
    )


def _column(
    tangents: FeedTangents, place: tuple[int, int], column: Array, first: int, order: NDArray[np.int64]
) -> Array:
    """Return the tangents of one feed of a part, in the order of its data."""
    of_batch = tangents.columns.get(place)
    if of_batch is None:
        return np.zeros_like(column)
    rows: Array = of_batch[tangents.firsts[place[0]][first] + order]
    return rows.astype(column.dtype, copy=False)


# -- gradients of inputs, and from results: cells staged once more, for the same traces


def with_gradients(
    model: Model,
    *,
    losses: bool = True,
    results: bool = False,
    parameters: bool = True,
    inputs: bool = False,
    training: bool = True,
) -> Model:
    """Return a model whose cells yield other gradients than those of parameters from losses."""
    graphs = [cell.built if training else transformed(cell.built, SETTLED) for cell in model.cells]
    feeds = [
        frozenset(i for i, x in enumerate(graph.feeds) if inputs and x.type.is_float) for graph in graphs
    ]
    wanted = [
        bool(data) or (parameters and bool(trainable(graph.outputs + graph.losses)))
        for graph, data in zip(graphs, feeds, strict=True)
    ]
    sources = Sources(losses, model.results if results else frozenset())
    return restaged(model, graphs, sources, wanted, feeds, trained=parameters)


def float_reads(model: Model) -> dict[str, tuple[TensorType, list[list[tuple[int, int]]]]]:
    """Return the reads of floats from examples, by the path of the block that reads.

    Reads of one path that differ in type, as those of a cell of two structures, have their type behind it.
    """
    places: dict[Node, list[tuple[int, int]]] = {}
    reads: dict[str, tuple[TensorType, list[list[tuple[int, int]]]]] = {}
    for k, (cell, feeds) in enumerate(zip(model.cells, model.feeds, strict=True)):
        for i, (node, feed) in enumerate(zip(cell.built.feeds, feeds, strict=True)):
            if node in places:
                places[node].append((k, i))
            elif feed.type.is_float:
                places[node] = [(k, i)]
                type_ = feed.type
                alike = reads.get(feed.where, (type_, []))[0] == type_
                path = feed.where if alike else f"{feed.where} {type_}"
                reads.setdefault(path, (type_, []))[1].append(places[node])
    return reads
