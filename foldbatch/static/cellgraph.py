"""What a cell computes, before it is compiled: a graph with named ends, and which of these recur."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from foldbatch.static.graph import Graph, Node, reachable
from foldbatch.static.op import Axis


@dataclass(frozen=True, slots=True)
class CellGraph:
    """What one place of a program computes per call.

    `operands` are inputs that are results of other calls (CALL or ragged axis), `feeds` inputs
    read from the example, `outputs` the results others read; `losses` are scalars to be summed
    over the batch, `metrics` are collected.
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

    `active_feeds` are data whose gradients are wanted; `trained` says that those of parameters are, `losses`
    that losses are where gradients come from, besides the outputs that carry them.
    """

    recursive_operands: frozenset[int] = frozenset()
    recursive_outputs: frozenset[int] = frozenset()
    active_operands: frozenset[int] = frozenset()
    active_outputs: frozenset[int] = frozenset()
    active_feeds: frozenset[int] = frozenset()
    trained: bool = True
    losses: bool = True


def feed_bounds(graph: CellGraph) -> dict[Node, int]:
    """Return, for the feeds used as indices, the number their values must stay below."""
    feeds = set(graph.feeds)
    bounds: dict[Node, int] = {}
    for node in reachable(graph.results, graph.inputs):
        if node.op.bound:
            at, size = node.op.bound(tuple(x.type for x in node.inputs), node.attrs)
            source = index_source(node.inputs[at])
            if source in feeds:
                bounds[source] = min(size, bounds.get(source, size))
    return bounds


def index_source(node: Node) -> Node:
    """Return the node whose values an index has, behind casts and reshapes."""
    while node.op.name in ("cast", "reshape") and node.inputs[0].dtype.startswith("int"):
        node = node.inputs[0]
    return node


def transformed(graph: CellGraph, transform: Callable[[Graph], Graph]) -> CellGraph:
    """Return the cell's graph with what `transform` makes of it; itself where that is nothing."""
    whole = Graph(graph.inputs, graph.results)
    results = iter(transform(whole).outputs)
    parts = [tuple(next(results) for _ in part) for part in (graph.outputs, graph.losses, graph.metrics)]
    new = CellGraph(graph.name, graph.operands, graph.feeds, *parts)
    return graph if new.results == whole.outputs else new
