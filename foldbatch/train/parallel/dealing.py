"""Dealing: which rank runs which examples, decided alike on every rank from what the examples cost."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from foldbatch.traced import Prepared
from foldbatch.trees import Tree, TreeNode


def cost(example: Any) -> int:
    """Return what an example costs: the calls of a prepared one, the nodes of a tree, else 1.

    Of an example that is a tuple, list or dict, such as a tree with its label, the dearest entry counts, and
    at least its length.

    >>> cost(([Tree.leaf(), Tree.leaf()], 3)), cost("a text")
    (2, 1)
    """
    if isinstance(example, Prepared):
        return example.trace.size
    if isinstance(example, Tree):
        return int(example.size)
    if isinstance(example, TreeNode):
        return int(example.tree.size)
    if isinstance(example, list | tuple | dict):
        entries = example.values() if isinstance(example, dict) else example
        return max([len(example), *map(cost, entries)])
    return 1


def deal(costs: Sequence[int], ranks: int) -> list[list[int]]:
    """Return, for each rank, the places of its examples in the batch, ascending.

    The dearest example is dealt first, each to the rank that has least; of equals the first one. The dearest
    share is at most 4/3 of what the best way to deal would reach.

    >>> deal([5, 1, 3, 3, 1, 1], 2)
    [[0, 1, 4], [2, 3, 5]]

    Source: Graham 1969, Bounds on multiprocessing timing anomalies.
    """
    shares: list[list[int]] = [[] for _ in range(ranks)]
    loads = [(0, rank) for rank in range(ranks)]
    for place in sorted(range(len(costs)), key=lambda place: (-costs[place], place)):
        load, rank = loads[0]
        shares[rank].append(place)
        heapq.heapreplace(loads, (load + costs[place], rank))
    return [sorted(share) for share in shares]


def stretches(costs: Sequence[int], ranks: int) -> list[range]:
    """Return, for each rank, neighbouring examples of about the same cost together; ranks keep the order.

    >>> stretches([5, 1, 3, 3, 1, 1], 2)
    [range(0, 2), range(2, 6)]
    """
    done = np.cumsum(np.maximum(np.asarray(costs, np.int64), 1))
    total = int(done[-1]) if len(done) else 0
    ends = [int(np.searchsorted(done, total * rank // ranks, side="right")) for rank in range(1, ranks)]
    bounds = [0, *ends, len(costs)]
    return [range(first, last) for first, last in pairwise(bounds)]
