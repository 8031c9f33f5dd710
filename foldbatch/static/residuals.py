"""Residuals: the values that forward keeps for backward, and those computed again, under a byte budget.

Source: Chen et al. 2016 (Training deep nets with sublinear memory cost). Here the choice is made within
one call of a cell: computing a value again costs elementwise work and saves a row for each call.
"""

from __future__ import annotations

from foldbatch.static.cellgraph import Ends
from foldbatch.static.graph import Node
from foldbatch.static.op import UNBATCHED
from foldbatch.static.sides import Staged, backward_side, kept_between

DEAR = frozenset(
    {"linear", "linear_by", "matmul", "sum_outer", "sum_outer_by"}
)  # computing these again costs more than reading the result


def choose(staged: Staged, ends: Ends, budget: int | None) -> frozenset[Node]:
    """Return the nodes that backward computes again, so that a call keeps no more than `budget` bytes.

    Nodes are tried from the cheapest to the dearest, the largest first, and taken unless the kept bytes
    grow; matrix products are never computed again. Where that is not enough, the budget is exceeded.

    Args:
        staged: the cell's graph, optimized.
        ends: which ends are recursive, and where gradients are wanted.
        budget: bytes per call (and per element of its sequences); None keeps everything.
    """
    chosen: frozenset[Node] = frozenset()
    if budget is None:
        return chosen
    kept = _kept(staged, ends, chosen)
    tried: set[Node] = set()
    while _bytes(kept) > budget:
        forward = staged.forward.owned
        costs = [n for n in kept if n.axis is not UNBATCHED]  # one value for the whole batch takes no row
        candidates = [n for n in costs if n in forward and n not in tried and n.op.name not in DEAR]
        if not candidates:
            break
        node = min(candidates, key=lambda n: (not n.op.elementwise, -n.type.nbytes, n.number))
        tried.add(node)
        fewer = _kept(staged, ends, chosen | {node})
        if _bytes(fewer) <= _bytes(kept):  # no gain yet may become one, with another reader of the same node
            chosen, kept = chosen | {node}, fewer
    return chosen


def _kept(staged: Staged, ends: Ends, recomputed: frozenset[Node]) -> list[Node]:
    backward = backward_side(staged, ends, recomputed)
    return [node for node in kept_between([staged.forward, backward]) if node not in backward.left]


def _bytes(nodes: list[Node]) -> int:
    return sum(node.type.nbytes for node in nodes if node.axis is not UNBATCHED)
