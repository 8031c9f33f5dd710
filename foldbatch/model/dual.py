"""Dual programs: every value with its tangent, in the cells, arenas and traces of the program itself.

When parameters move along tangents, every value that depends on them moves, too. Such a value x of
shape ``[*]`` becomes the pair (x, dx), ``[2, *]``, under the same number and at the same row, so
traces and schedules stay as they are. The losses of the dual program are the tangents of the
losses; its metrics are the losses. So its forward pass yields a directional derivative, and its
gradients are the Hessian times the tangents.

Source: Pearlmutter 1994 (Fast exact multiplication by the Hessian), section 3: reverse mode over
forward mode.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from foldbatch.model.model import Model, Sources, acted_on, restaged
from foldbatch.params.parameters import Parameter
from foldbatch.static.autodiff import jvp, trainable
from foldbatch.static.cell import transformed
from foldbatch.static.cellgraph import CellGraph
from foldbatch.static.graph import Node, apply, constant, input_node, parameter_node, substitute
from foldbatch.static.passes.simplify import in_phase
from foldbatch.types import VOID, TensorType

LOSS = "loss"


def dual(model: Model, tangents: Mapping[Parameter, Parameter]) -> Model:
    """Return the dual of a model, while training; traces and parameters are the same.

    Its losses are the tangents of the model's losses. Its only metric, ``LOSS``, is the model's losses. Its
    results are void.
    """
    trained = [bool(trainable(cell.graph.outputs + cell.graph.losses)) for cell in model.cells]
    acted = acted_on(model.reads, model.writes, trained)
    moving = {arena for arena in acted if model.arenas[arena].is_float}
    graphs = []
    for cell, signature in zip(model.cells, model.signatures, strict=True):
        operands = {
            i: 1 if len(operand.columns) > 1 else 0
            for i, operand in enumerate(signature.operands)
            if operand.arena in moving
        }
        outputs = {j for j, arena in enumerate(signature.outputs) if arena in moving}
        graphs.append(dual_graph(cell.graph.named(cell.name), operands, outputs, tangents))
    wanted = [bool(trainable(graph.outputs + graph.losses)) for graph in graphs]
    return replace(
        restaged(model, graphs, Sources(), wanted),
        result=VOID,
        arenas=tuple(
            TensorType((2, *type_.shape), type_.dtype) if arena in moving else type_
            for arena, type_ in enumerate(model.arenas)
        ),
        losses=tuple((LOSS,) * len(graph.losses) for graph in graphs),
        metrics=tuple((LOSS,) * len(graph.metrics) for graph in graphs),
        labels=((),) * len(graphs),
        marks=((),) * len(graphs),
    )


def dual_graph(
    graph: CellGraph,
    operands: Mapping[int, int],
    outputs: Collection[int],
    tangents: Mapping[Parameter, Parameter],
) -> CellGraph:
    """Return a cell's graph on pairs of values and tangents."""
    inputs, values, moving = list(graph.operands), dict[Node, Node](), dict[Node, Node]()
    for i, axis in operands.items():
        x = graph.operands[i]
        shape = (*x.shape[:axis], 2, *x.shape[axis:])
        inputs[i] = input_node(TensorType(shape, x.dtype), x.axis, "pair")
        before = (slice(None),) * axis
        values[x] = inputs[i][(*before, 0)]
        moving[values[x]] = inputs[i][(*before, 1)]
    results = substitute(graph.outputs + graph.losses, values)
    moving |= {node: parameter_node(tangents[node.attrs["parameter"]]) for node in trainable(results)}
    moved = jvp(results, list(moving), list(moving.values()))
    pairs = list(zip(results, moved, strict=True))
    losses = pairs[len(graph.outputs) :]
    return CellGraph(
        graph.name,
        tuple(inputs),
        graph.feeds,
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
    settled = partial(in_phase, training=False)
    graphs = [cell.built if training else transformed(cell.built, settled) for cell in model.cells]
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
