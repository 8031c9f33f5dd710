"""Which part of a cell runs when: before, step, after.

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

from collections.abc import Callable, Collection, Iterable, Mapping

from foldbatch.static.graph import SOURCES, Node, reachable
from foldbatch.static.op import UNBATCHED

BEFORE, STEP, AFTER = STAGES = ("before", "step", "after")
StageOf = Callable[[Node], str]

# Ops that only look at their operand's memory in another way. A stage that reads such a node computes
# it again instead of storing it.
VIEWS = frozenset({"reshape", "slice", "transpose", "broadcast_to", "batch"})


def is_view(node: Node) -> bool:
    """Whether the node costs nothing to make again from its operand."""
    return node.op.name in VIEWS


def split(
    outputs: Iterable[Node],
    recursive_inputs: Collection[Node],
    recursive_outputs: Collection[Node],
    given: Collection[Node],
) -> dict[Node, str]:
    """Return the stage of every node behind `outputs` that must be computed.

    `given` are the nodes whose values come from outside (the graph's inputs); sources have no
    stage either.
    """
    outside = set(given)
    nodes = [n for n in reachable(outputs, given) if n.op not in SOURCES and n not in outside]
    late = set(recursive_inputs)
    for node in nodes:
        if any(x in late for x in node.inputs):
            late.add(node)
    wanted = set(recursive_outputs)
    for node in reversed(nodes):
        if node in wanted:
            wanted.update(node.inputs)
    return {n: BEFORE if n not in late else STEP if n in wanted else AFTER for n in nodes}


def postpone(
    stages: Mapping[Node, str], outputs: Collection[Node], given: Collection[Node]
) -> dict[Node, str]:
    """Return the stages of a backward graph with the derivatives of gates moved to where they are read.

    A node that only the step reads, and that elementwise ops make from given nodes (1 - h h from h), could
    run before, for all calls at once. But that would write as much memory as the gates take, and read
    it back level by level. A node with one value for the whole batch stays: it is computed once.
    """
    stages = dict(stages)
    cheap: set[Node] = set()
    readers: dict[Node, list[Node]] = {node: [] for node in stages}
    for node, stage in stages.items():
        for x in node.inputs:
            if x in readers:
                readers[x].append(node)
        simple = node.axis is not UNBATCHED and (node.op.elementwise or is_view(node))
        if (
            stage == BEFORE
            and simple
            and all(x in given or x in cheap or x.op in SOURCES for x in node.inputs)
        ):
            cheap.add(node)
    for node in reversed(list(stages)):
        only_step = bool(readers[node]) and all(stages[reader] == STEP for reader in readers[node])
        if node in cheap and node not in outputs and only_step:
            stages[node] = STEP
    return stages
