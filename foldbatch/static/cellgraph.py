"""The graph of a cell, with named inputs and results, which of these recur, and so what runs when.

In a cell that takes part in a recursion, only the nodes on a path from a recursive input to a
recursive output must wait for their turn, level by level (*step*). Nodes that depend on no recursive
input (*before*: embeddings, input projections) and nodes on which no recursive output depends
(*after*: classifiers, losses) run once per batch, over all calls. The same cut serves the
backward graph, whose recursive inputs are the cotangents of recursive outputs; there all
parameter gradients fall into *after*.

Source: Theano's scan pushes computation out of loops likewise; Cavs (Xu et al. 2018) moves
parameter gradients out of its levels ("lazy batching").

A node that stacks or concatenates its children's states would copy them together on every
level. Where the operands lie side by side in the arena (and the layout sees to it that they
do) that copy is a view. So `pack` replaces inputs that a graph stacks, or joins end to end, by
one input with a leading axis over them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property

from foldbatch.static.graph import PARAMETER, Graph, Node, apply, input_node, reachable, substitute
from foldbatch.static.op import CALL, Axis
from foldbatch.types import TensorType

BEFORE, STEP, AFTER = STAGES = ("before", "step", "after")
StageOf = Callable[[Node], str]


@dataclass(frozen=True)
class CellGraph:
    """The graph that one place of a program computes per call.

    Graphs that differ in the name alone are equal, so what was made of one serves the others.
    """

    name: str = field(compare=False)  # the name of the cell
    operands: tuple[Node, ...]  # inputs that are results of other calls, with a CALL or a ragged axis
    feeds: tuple[Node, ...]  # inputs read from the example
    outputs: tuple[Node, ...]  # results that other calls read
    losses: tuple[Node, ...] = ()  # scalars to be summed over the batch
    metrics: tuple[Node, ...] = ()  # results to be collected

    def named(self, name: str) -> CellGraph:
        """Return the graph under a name, with all that was derived from it: names of cells change often.

        >>> graph = CellGraph("node", (), (), ())
        >>> graph.named("node") is graph, graph.named("node_1") == graph, graph.named("node_1").name
        (True, True, 'node_1')
        """
        if name == self.name:
            return self
        renamed = copy(self)
        vars(renamed)["name"] = name
        return renamed

    @property
    def inputs(self) -> tuple[Node, ...]:
        """All inputs, operands first."""
        return self.operands + self.feeds

    @property
    def results(self) -> tuple[Node, ...]:
        """All that is computed."""
        return self.outputs + self.losses + self.metrics

    @cached_property
    def joined(self) -> Graph:
        """The cut from all inputs to all results."""
        return Graph(self.inputs, self.results)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The ragged axes of its inputs, in order."""
        return tuple(dict.fromkeys(x.axis for x in self.inputs if x.axis.rank == 2))

    @cached_property
    def nodes(self) -> list[Node]:
        """All that its results depend on, operands first, its inputs where they are read."""
        return reachable(self.results, self.inputs)

    @cached_property
    def learning(self) -> list[Node]:
        """The nodes of parameters behind what gradients may start from: outputs and losses."""
        return [node for node in reachable(self.outputs + self.losses) if node.op is PARAMETER]

    @cached_property
    def weights(self) -> int:
        """How many numbers of parameters a call reads.

        Of a table of matrices it reads the one that its id chooses; one row of a table counts nothing.
        """
        read = {x for node in self.nodes for i, x in enumerate(node.inputs) if node.op.table != i}
        products = [node for node in self.nodes if node.op.product]
        chosen = {x for node in products for i, x in enumerate(node.inputs) if node.op.table == i} - read
        full = sum(x.type.size for x in read if x.op is PARAMETER)
        return full + sum(x.type.size // x.shape[0] for x in chosen if x.op is PARAMETER)

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


def index_source(node: Node) -> Node:
    """Return the node that holds the values of an index, behind casts, reshapes and repetitions."""
    while node.op.keeps_values and node.inputs[0].dtype.startswith("int"):
        node = node.inputs[0]
    return node


PackedOperand = tuple[Node, tuple[int, ...]]


def pack(
    operands: Sequence[Node], results: Sequence[Node], recursive: Collection[int] | None = None
) -> tuple[list[PackedOperand], list[Node]]:
    """Return new operands, each with the numbers of the old operands in it, and the results in terms of them.

    Only operands with a row per call are packed, each into the first group that wants it. Operands whose
    numbers are in `recursive` are not packed with others, as nodes that read only the others need not wait.
    """
    late = {operands[i] for i in recursive or ()}
    numbers = {node: i for i, node in enumerate(operands) if node.axis is CALL}
    replaced: dict[Node, Node] = {}
    packed: dict[int, PackedOperand] = {}
    for node in reachable(results, operands):
        members = tuple(x.inputs[0] if x.op.name == "reshape" else x for x in node.inputs)
        alike = len({(x.type, x.axis, x in late) for x in members}) == 1
        free = all(x in numbers and x not in replaced for x in members)
        # whether the node's memory is that of its operands one after the other
        joins = node.op.name == "concat" and node.attrs["axis"] == 0
        if not joins or len(set(members)) != len(members) or len(members) < 2 or not alike or not free:
            continue
        first = members[0]
        pack_input = input_node(TensorType((len(members), *first.shape), first.dtype), name="pack")
        for i, x in enumerate(members):
            replaced[x] = pack_input[i]
        replaced[node] = (
            pack_input if node.shape == pack_input.shape else apply("reshape", pack_input, shape=node.shape)
        )
        members_of_pack = tuple(numbers[x] for x in members)
        packed[members_of_pack[0]] = (pack_input, members_of_pack)
    taken = {i for _, members_of_pack in packed.values() for i in members_of_pack}
    remaining = [(i, node) for i, node in enumerate(operands) if i in packed or i not in taken]
    new = [packed.get(i, (node, (i,))) for i, node in remaining]
    return new, substitute(results, replaced)
