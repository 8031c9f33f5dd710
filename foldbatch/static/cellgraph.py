"""The graph of a cell, with named inputs and results, which of these recur, and so what runs when.

In a cell that takes part in a recursion, only the nodes on a path from a recursive input to a
recursive output must wait for their turn, level by level (*step*). Nodes that depend on no recursive
input (*before*: embeddings, input projections) and nodes on which no recursive output depends
(*after*: classifiers, losses) run once per batch, over all calls. The same cut serves the
backward graph, whose recursive inputs are the cotangents of recursive outputs; there all
parameter gradients fall into *after*.

Source: Theano's scan pushes computation out of loops likewise; Cavs (Xu et al. 2018) moves
parameter gradients out of its levels ("lazy batching").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from foldbatch.static.graph import PARAMETER, Node, reachable
from foldbatch.static.op import Axis

BEFORE, STEP, AFTER = STAGES = ("before", "step", "after")
StageOf = Callable[[Node], str]


@dataclass(frozen=True)
class CellGraph:
    """The graph that one place of a program computes per call."""

    name: str  # the name of the cell
    operands: tuple[Node, ...]  # inputs that are results of other calls, with a CALL or a ragged axis
    feeds: tuple[Node, ...]  # inputs read from the example
    outputs: tuple[Node, ...]  # results that other calls read
    losses: tuple[Node, ...] = ()  # scalars to be summed over the batch
    metrics: tuple[Node, ...] = ()  # results to be collected

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

    @cached_property
    def nodes(self) -> list[Node]:
        """All that its results depend on, operands first, its inputs where they are read."""
        return reachable(self.results, self.inputs)

    @cached_property
    def bounds(self) -> dict[Node, int]:
        """For the feeds used as indices, the number their values must stay below."""
        bounds: dict[Node, int] = {}
        for node in self.nodes:
            if node.op.bound:
                place, size = node.op.bound(tuple(x.type for x in node.inputs), node.attrs)
                source = index_source(node.inputs[place])
                if source in self.feeds:
                    bounds[source] = min(size, bounds.get(source, size))
        return bounds


@dataclass(frozen=True, slots=True)
class Ends:
    """Which operands and outputs (by number) are recursive, and which carry gradients."""

    recursive_operands: frozenset[int] = frozenset()  # the operands that the recursion computes
    recursive_outputs: frozenset[int] = frozenset()  # the outputs that the recursion reads
    active_operands: frozenset[int] = frozenset()  # the operands whose cotangents are wanted
    active_outputs: frozenset[int] = frozenset()  # the outputs whose cotangents are given
    active_feeds: frozenset[int] = frozenset()  # the feeds whose gradients are wanted
    trained: bool = True  # whether gradients of parameters are wanted
    losses: bool = True  # whether gradients start from losses, besides the active outputs


def weights_of(graph: CellGraph) -> int:
    """Return how many numbers of parameters a call reads; of a table that is looked up by id they are few."""
    tables = {"gather": 0, "linear_by": 1}  # which operand a call reads only one row of
    read = {x for node in graph.nodes for i, x in enumerate(node.inputs) if tables.get(node.op.name) != i}
    chosen = {node.inputs[1] for node in graph.nodes if node.op.name == "linear_by"} - read
    whole = sum(x.type.size for x in read if x.op is PARAMETER)
    return whole + sum(x.type.size // x.shape[0] for x in chosen if x.op is PARAMETER)


def index_source(node: Node) -> Node:
    """Return the node that holds the values of an index, behind casts and reshapes."""
    while node.op.name in ("cast", "reshape") and node.inputs[0].dtype.startswith("int"):
        node = node.inputs[0]
    return node
