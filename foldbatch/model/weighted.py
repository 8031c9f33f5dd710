"""Weighted programs: the loss of each call times the weight of its example, in the traces of the program.

Each cell with losses reads one number more, the weight of the example that calls it. Traces do not hold it:
like keys of random numbers, weights are joined to a batch's data when it runs. So one pass yields the
gradients of a weighted sum, on every engine, whatever the weights are.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldbatch.errors import BlockValueError, counted
from foldbatch.model.drafts import Feed
from foldbatch.model.model import Model, Sources, restaged
from foldbatch.params.parameters import Array
from foldbatch.static.autodiff import trainable
from foldbatch.static.cellgraph import CellGraph
from foldbatch.static.graph import apply, input_node
from foldbatch.types import TensorType, describe_value

WEIGHT = Feed(TensorType((), "float32"), "weights", "")


def weighted(model: Model) -> Model:
    """Return the model whose losses are multiplied by a number that each call reads, its last feed."""
    graphs = [weighted_graph(cell.built) for cell in model.cells]
    wanted = [bool(trainable(graph.outputs + graph.losses)) for graph in graphs]
    feeds = [
        (*of_cell, WEIGHT) if graph.losses else of_cell
        for of_cell, graph in zip(model.feeds, graphs, strict=True)
    ]
    return replace(restaged(model, graphs, Sources(), wanted), feeds=tuple(feeds))


def weighted_graph(graph: CellGraph) -> CellGraph:
    """Return a cell's graph with its losses multiplied by a feed of its own."""
    if not graph.losses:
        return graph
    weight = input_node(WEIGHT.type)
    losses = [loss * apply("cast", weight, dtype=loss.dtype) for loss in graph.losses]
    return replace(graph, feeds=(*graph.feeds, weight), losses=tuple(losses))


def weighed(
    feeds: Sequence[tuple[Array, ...]], model: Model, weights: Array, examples: Sequence[Array]
) -> tuple[tuple[Array, ...], ...]:
    """Return the data of all cells, with the weight of each call's example for those that have losses.

    `examples` has the example of each row, per cell ``[n]``; ``weights: [N]``.
    """
    return tuple(
        (*columns, weights[numbers]) if losses else columns
        for columns, losses, numbers in zip(feeds, model.losses, examples, strict=True)
    )


def example_weights(where: str, weights: ArrayLike, count: int) -> NDArray[np.float32]:
    """Return the weights of examples: ``[N]``.

    Raises:
        BlockValueError: when there is not a finite number of 0 or more for each example.
    """
    try:
        array = np.asarray(weights)
        fits = array.shape == (count,) and (not count or array.dtype.kind in "iufb")
    except (TypeError, ValueError):
        fits = False
    if not fits:
        expected = f"{counted(count, 'number')}, one for each example"
        raise BlockValueError(where, expected, describe_value(weights), "a weight of 1 counts once")
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(wrong):
        actual = f"{array[wrong[0]]} of example {wrong[0]}"
        raise BlockValueError(where, "finite numbers of 0 or more", actual, "a weight of 0 leaves it out")
    return array.astype(np.float32)
