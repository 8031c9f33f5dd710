"""Functions of tensors in the blocks of a schema: how items are pooled, and steps of a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from foldbatch import blocks as fb
from foldbatch.static import ops
from foldbatch.static.graph import Node

FAINT = 0.03  # of what layers say beside the linear path, at first


def log_sum_exp(items: Node) -> Node:
    """Return the logarithm of the sum of exponentials, a soft maximum: ``[N, M, size]`` to ``[N, size]``."""
    return ops.segment_logsumexp(items)


def log_count(count: Node) -> Node:
    """Return the logarithm of 1 + a number of items, ``[N]`` to ``[N, 1]``."""
    return ops.reshape(ops.log(1 + count), (1,))


def over_root(total: Node, count: Node) -> Node:
    """Return a sum over the root of how many there are: ``total: [N, size], count: [N]`` to ``[N, size]``.

    Of items that differ it is about as large for many as for few, and one that comes again counts more.
    """
    return total / ops.sqrt(ops.maximum(count, 1.0))


def steps(numbers: Node, *, count: int) -> Node:
    """Replace the last of some numbers, a place between edges, by how far it has come in each step, 0 to 1.

    With these a linear layer makes any function of straight pieces that bend at the edges: ``[N, n]`` to
    ``[N, n - 1 + count]``.
    """
    last = numbers.shape[0] - 1
    passed = ops.clip(numbers[last:] - np.arange(count, dtype="float32"), 0.0, 1.0)
    return ops.concat([numbers[:last], passed])


def faint(vector: Node) -> Node:
    """Return a vector scaled down."""
    return vector * FAINT


def doubled(vector: Node) -> Node:
    """Return a vector twice: what is added up, and what layers see: ``[N, size]`` to ``[N, 2 size]``."""
    return ops.concat([vector, vector])


def unseen(vector: Node) -> Node:
    """Return a vector that is added up, and zeros for what layers see: ``[N, size]`` to ``[N, 2 size]``."""
    return ops.concat([vector, vector * 0.0])


def added(vector: Node) -> Node:
    """Return the half that is added up of a vector: ``[N, 2 size]`` to ``[N, size]``."""
    return vector[: vector.shape[0] // 2]


def seen_of(vectors: Node, *, count: int) -> Node:
    """Return the halves that layers see, of `count` vectors: ``[N, 2 count size]`` to ``[N, count size]``."""
    size = vectors.shape[0] // count // 2
    return ops.concat([vectors[(2 * i + 1) * size : (2 * i + 2) * size] for i in range(count)])


Pooling = Callable[[], fb.Block[Any, Any]]
POOLINGS: dict[str, Pooling] = {
    "mean": fb.Mean,
    "max": fb.Max,
    "sum": fb.Sum,
    "min": fb.Min,
    "lse": lambda: fb.Function(log_sum_exp),
}
