"""Sums in the order of time: terms that are ready before the recursion are added up before it."""

from __future__ import annotations

from foldbatch.static.graph import Graph, Node, apply
from foldbatch.static.op import UNBATCHED
from foldbatch.static.passes.rewrite import rebuilt, rewrite_knowing
from foldbatch.static.stages import BEFORE, StageOf


def sum_early(graph: Graph, stage_of: StageOf) -> Graph:
    """Return the graph with the terms of a sum that are ready before it as a sum of their own.

    ``x @ W + h @ U + b``, where only h has to be waited for, is ``(x @ W + b) + h @ U``: one addition
    a level instead of two.
    """

    def regroup(node: Node, operands: list[Node]) -> Node:
        now = rebuilt(node, operands)
        stage = stage_of(node)
        early = [i for i, x in enumerate(node.inputs) if stage_of(x) == BEFORE]
        if node.op.name != "add" or stage == BEFORE or len(early) in (0, 1, len(operands)):
            return now
        if all(node.inputs[i].axis is UNBATCHED for i in early):
            return now  # a sum of parameters, or a constant: it saves nothing to speak of
        first = apply("add", *(operands[i] for i in early))
        late = [x for i, x in enumerate(operands) if i not in early]
        total = apply("add", first, *late)
        return total if (total.type, total.axis) == (node.type, node.axis) else now

    return rewrite_knowing(graph, regroup)
