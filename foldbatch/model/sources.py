"""Gradients of inputs, and from results: cells staged once more, for the same traces."""

from functools import partial

from foldbatch.model.active import Sources
from foldbatch.model.model import Model, restaged
from foldbatch.static.autodiff import trainable
from foldbatch.static.cell import transformed
from foldbatch.static.graph import Node
from foldbatch.static.passes.simplify import in_phase
from foldbatch.types import TensorType


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
    """Return the reads of floats from examples, by the path of the block that reads."""
    places: dict[Node, list[tuple[int, int]]] = {}
    reads: dict[str, tuple[TensorType, list[list[tuple[int, int]]]]] = {}
    for k, (cell, feeds) in enumerate(zip(model.cells, model.feeds, strict=True)):
        for i, (node, feed) in enumerate(zip(cell.built.feeds, feeds, strict=True)):
            if node in places:
                places[node].append((k, i))
            elif feed.type.is_float:
                places[node] = [(k, i)]
                reads.setdefault(feed.where, (feed.type, []))[1].append(places[node])
    return reads
