"""Residuals: what forward keeps for backward, and what is computed again instead, under a byte budget.

Source: Chen et al. 2016 (Training deep nets with sublinear memory cost); what is chosen here is
within one call of a cell, where computing again costs elementwise work and saves a row for each call.
"""

from __future__ import annotations

from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import Node
from foldbatch.static.op import UNBATCHED
from foldbatch.static.sides import backward_side, forward_side, kept_between

DEAR = frozenset({"linear", "matmul", "sum_outer"})  # whose work exceeds that of reading what they made


def choose(graph: CellGraph, ends: Ends, budget: int | None) -> frozenset[Node]:
    """Return the nodes that backward computes again, so that a call keeps no more than `budget` bytes.

    Nodes are tried from the cheapest to the dearest, the largest first, and taken unless the kept bytes
    grow; matrix products are never computed again. Where that is not enough, it is as near as it gets.

    Args:
        graph: the cell's graph, optimized.
        ends: which ends are recursive, and where gradients are wanted.
        budget: bytes per call (and per element of its sequences); None keeps everything.
    """
    chosen: frozenset[Node] = frozenset()
    if budget is None:
        return chosen
    kept = _kept(graph, ends, chosen)
    tried: set[Node] = set()
    while _bytes(kept) > budget:
        forward = forward_side(graph, ends).owned
        candidates = [n for n in kept if n in forward and n not in tried and n.op.name not in DEAR]
        if not candidates:
            break
        node = min(candidates, key=lambda n: (not n.op.elementwise, -n.type.nbytes, n.number))
        tried.add(node)
        fewer = _kept(graph, ends, chosen | {node})
        if _bytes(fewer) <= _bytes(
            kept
        ):  # what costs nothing may save later, with another that reads the same
            chosen, kept = chosen | {node}, fewer
    return chosen


def _kept(graph: CellGraph, ends: Ends, recomputed: frozenset[Node]) -> list[Node]:
    forward = forward_side(graph, ends)
    backward = backward_side(graph, ends, forward, recomputed)
    return list(kept_between([forward, backward]))


def _bytes(nodes: list[Node]) -> int:
    return sum(node.type.nbytes for node in nodes if node.axis is not UNBATCHED)
