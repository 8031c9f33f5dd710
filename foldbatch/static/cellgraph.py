"""The graph of a cell before it is compiled, with named inputs and results, and which of these recur."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from foldbatch.static.graph import PARAMETER, Graph, Node, reachable
from foldbatch.static.op import Axis


@dataclass(frozen=True, slots=True)
class CellGraph:
    """The graph that one place of a program computes per call.

    Attributes:
        name: the name of the cell.
        operands: inputs that are results of other calls, with a CALL or a ragged axis.
        feeds: inputs read from the example.
        outputs: results that other calls read.
        losses: scalars to be summed over the batch.
        metrics: results to be collected.
    """

    name: str
    operands: tuple[Node, ...]
    feeds: tuple[Node, ...]
    outputs: tuple[Node, ...]
    losses: tuple[Node, ...] = ()
    metrics: tuple[Node, ...] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        """All inputs, operands first."""
        return self.operands + self.feeds

    @property
    def results(self) -> tuple[Node, ...]:
        """All that is computed."""
        return self.outputs + self.losses + self.metrics

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The ragged axes of its inputs, in order."""
        return tuple(dict.fromkeys(x.axis for x in self.inputs if x.axis.rank == 2))


@dataclass(frozen=True, slots=True)
class Ends:
    """Which operands and outputs (by number) are recursive, and which carry gradients.

    Attributes:
        recursive_operands: the operands that the recursion computes.
        recursive_outputs: the outputs that the recursion reads.
        active_operands: the operands whose cotangents are wanted.
        active_outputs: the outputs whose cotangents are given.
        active_feeds: the feeds whose gradients are wanted.
        trained: whether gradients of parameters are wanted.
        losses: whether gradients start from losses, besides the active outputs.
    """

    recursive_operands: frozenset[int] = frozenset()
    recursive_outputs: frozenset[int] = frozenset()
    active_operands: frozenset[int] = frozenset()
    active_outputs: frozenset[int] = frozenset()
    active_feeds: frozenset[int] = frozenset()
    trained: bool = True
    losses: bool = True


def weights_of(graph: CellGraph) -> int:
    """Return how many numbers of parameters a call reads; of a table that is looked up by id they are few."""
    nodes = reachable(graph.results, graph.inputs)
    tables = {"gather": 0, "linear_by": 1}  # which operand a call reads only one row of
    read = {x for node in nodes for i, x in enumerate(node.inputs) if tables.get(node.op.name) != i}
    chosen = {node.inputs[1] for node in nodes if node.op.name == "linear_by"} - read
    whole = sum(x.type.size for x in read if x.op is PARAMETER)
    return whole + sum(x.type.size // x.shape[0] for x in chosen if x.op is PARAMETER)


def feed_bounds(graph: CellGraph) -> dict[Node, int]:
    """Return, for the feeds used as indices, the number their values must stay below."""
    feeds = set(graph.feeds)
    bounds: dict[Node, int] = {}
    for node in reachable(graph.results, graph.inputs):
        if node.op.bound:
            place, size = node.op.bound(tuple(x.type for x in node.inputs), node.attrs)
            source = index_source(node.inputs[place])
            if source in feeds:
                bounds[source] = min(size, bounds.get(source, size))
    return bounds


def index_source(node: Node) -> Node:
    """Return the node that holds the values of an index, behind casts and reshapes."""
    while node.op.name in ("cast", "reshape") and node.inputs[0].dtype.startswith("int"):
        node = node.inputs[0]
    return node


def transformed(graph: CellGraph, transform: Callable[[Graph], Graph]) -> CellGraph:
    """Return the cell's graph after `transform`; the very same graph where nothing changed."""
    joined = Graph(graph.inputs, graph.results)
    results = iter(transform(joined).outputs)
    parts = [tuple(next(results) for _ in part) for part in (graph.outputs, graph.losses, graph.metrics)]
    new = CellGraph(graph.name, graph.operands, graph.feeds, *parts)
    return graph if new.results == joined.outputs else new
