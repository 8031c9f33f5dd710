"""Fewer and larger matrix products: joined where they share an operand, split where a part can run early.

Both passes must know when each node runs (its stage): a product that the recursion waits for is
never joined with one that it does not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

from foldbatch.static.graph import PARAMETER, Graph, Node, apply, reachable
from foldbatch.static.op import UNBATCHED
from foldbatch.static.passes.rewrite import rebuilt, rewrite_knowing
from foldbatch.static.stages import BEFORE, STEP, StageOf


def split_by_stage(graph: Graph, stage_of: StageOf) -> Graph:
    """Return the graph with ``concat(x, h) @ W`` as ``x @ W[:n] + h @ W[n:]`` where x is ready before h.

    So the part that the recursion does not need runs once for all levels.
    """

    def split(node: Node, operands: list[Node]) -> Node:
        joined = node.inputs[0] if node.op.name == "linear" else node
        if joined.op.name != "concat" or joined.attrs["axis"] != joined.ndim - 1 or joined is node:
            return rebuilt(node, operands)
        if stage_of(node) != STEP:
            return rebuilt(node, operands)
        runs = [
            [i for i, _ in run]
            for _, run in groupby(enumerate(joined.inputs), lambda p: stage_of(p[1]) == BEFORE)
        ]
        if len(runs) < 2 or operands[0].op is not joined.op:
            return rebuilt(node, operands)
        parts, weight = operands[0].inputs, operands[1]
        products, start = [], 0
        for run in runs:
            x = apply("concat", *(parts[i] for i in run), axis=joined.ndim - 1) if run[1:] else parts[run[0]]
            stop = start + x.shape[-1]
            products.append(apply("linear", x, apply("slice", weight, axis=0, start=start, stop=stop)))
            start = stop
        total = apply("add", *products)
        return total if total.axis is node.axis else rebuilt(node, operands)

    return rewrite_knowing(graph, split)


def merge_matmuls(graph: Graph, stage_of: StageOf) -> Graph:
    """Return the graph with products of one operand and several weights as one product.

    ``x @ A`` and ``x @ B`` are slices of ``x @ concat(A, B)``: an LSTM written with a weight for each
    gate has one product for all of them, and so has its gradient, which is derived from this.
    Weights that are trained are not joined with weights that are not.
    """
    groups: dict[tuple[Node, str, bool], list[Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.op.name == "linear" and node.inputs[1].axis is UNBATCHED and node.axis is not UNBATCHED:
            groups[node.inputs[0], stage_of(node), _is_trained(node.inputs[1])].append(node)
    group_of = {node: tuple(members) for members in groups.values() if len(members) > 1 for node in members}
    if not group_of:
        return graph

    def merged(node: Node, operands: list[Node]) -> Node:
        if node not in group_of:
            return rebuilt(node, operands)
        return _part(operands[0], group_of[node], node)

    return rewrite_knowing(graph, merged)


def _is_trained(weight: Node) -> bool:
    return any(x.op is PARAMETER and x.attrs["parameter"].trainable for x in reachable([weight]))


def _part(x: Node, members: Sequence[Node], node: Node) -> Node:
    """Return a member's columns of the product of `x` with the weights of all members."""
    product = apply("linear", x, apply("concat", *(member.inputs[1] for member in members), axis=1))
    start = sum(member.shape[-1] for member in members[: members.index(node)])
    return apply("slice", product, axis=product.ndim - 1, start=start, stop=start + node.shape[-1])
