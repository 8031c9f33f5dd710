"""Simplifications of elementwise ops and sums: neutral elements, needless broadcasts.

A rule takes a node and returns a simpler one that is equal to it, or None where it does not
apply. It keeps the type and the batch axis: an operand that is the same for the whole batch
stands for a batched node only inside a ``batch`` (see `in_place_of`).
"""

from __future__ import annotations

import numpy as np

from foldbatch.static.graph import CONSTANT, Node, apply
from foldbatch.static.op import CALL, UNBATCHED
from foldbatch.static.passes.fold_constants import fold


def in_place_of(node: Node, x: Node) -> Node | None:
    """Return `x`, which equals `node`, along the axis of `node`; None where the types differ."""
    if x.type != node.type:
        return None
    if x.axis is node.axis:
        return x
    if x.axis is UNBATCHED:
        return apply("batch", x, axis=node.axis)
    return apply("repeat", x, axis=node.axis) if x.axis is CALL and node.axis.rank == 2 else None


def _is_uniform(node: Node, value: float) -> bool:
    return node.op is CONSTANT and bool(np.all(node.attrs["value"] == value))


def times_one(node: Node) -> Node | None:
    """``x * 1`` and ``1 * x`` are x."""
    a, b = node.inputs
    if _is_uniform(b, 1):
        return in_place_of(node, a)
    return in_place_of(node, b) if _is_uniform(a, 1) else None


def divided_by_one(node: Node) -> Node | None:
    """``x / 1`` is x."""
    x, divisor = node.inputs
    return in_place_of(node, x) if _is_uniform(divisor, 1) else None


def minus_zero(node: Node) -> Node | None:
    """``x - 0`` is x."""
    x, subtracted = node.inputs
    return in_place_of(node, x) if _is_uniform(subtracted, 0) else None


def negative_twice(node: Node) -> Node | None:
    """``-(-x)`` is x."""
    (x,) = node.inputs
    return x.inputs[0] if x.op.name == "negative" else None


def sum_of_one(node: Node) -> Node | None:
    """Replace a sum of one term by the term."""
    return in_place_of(node, node.inputs[0]) if len(node.inputs) == 1 else None


def constants_joined(node: Node) -> Node | None:
    """``x + 1 + y + 2`` is ``x + y + 3``."""
    constants = [x for x in node.inputs if x.op is CONSTANT]
    if not 1 < len(constants) < len(node.inputs):
        return None
    joined = fold(apply("add", *constants))
    if joined.op is not CONSTANT:
        return None
    return apply("add", *(x for x in node.inputs if x.op is not CONSTANT), joined)


def plus_zero(node: Node) -> Node | None:
    """``x + 0 + y`` is ``x + y`` where the zero does not make the sum larger."""
    terms = [x for x in node.inputs if not _is_uniform(x, 0)]
    if not 0 < len(terms) < len(node.inputs):
        return None
    return in_place_of(node, terms[0] if len(terms) == 1 else apply("add", *terms))


def without_spreading(node: Node) -> Node | None:
    """``op(broadcast_to(x), y)`` is ``op(x, y)`` where y is as large; likewise ``op(batch(x), y)``."""
    spreads = [i for i, x in enumerate(node.inputs) if x.op.name in ("broadcast_to", "batch")]
    attempts = [spreads, *([i] for i in spreads)] if len(spreads) > 1 else [spreads]
    for places in attempts if spreads else ():
        operands = [x.inputs[0] if i in places else x for i, x in enumerate(node.inputs)]
        bare = apply(node.op.name, *operands, **node.attrs)
        if bare.type == node.type and bare.axis is node.axis:
            return bare
    return None


def batched_last(node: Node) -> Node | None:
    """``op(batch(x))`` is ``batch(op(x))``: one row is computed instead of many."""
    if not node.inputs or node.axis is UNBATCHED:
        return None
    if any(x.op.name != "batch" and x.axis is not UNBATCHED for x in node.inputs):
        return None
    operands = (x.inputs[0] if x.op.name == "batch" else x for x in node.inputs)
    return in_place_of(node, fold(apply(node.op.name, *operands, **node.attrs)))


def repeated_batch(node: Node) -> Node | None:
    """``repeat(batch(x))`` is x, along the elements of sequences at once."""
    (x,) = node.inputs
    return in_place_of(node, x.inputs[0]) if x.op.name == "batch" else None


def known_condition(node: Node) -> Node | None:
    """``where(True, a, b)`` is a, ``where(False, a, b)`` is b."""
    condition, a, b = node.inputs
    if _is_uniform(condition, value=True):
        chosen = a
    elif _is_uniform(condition, value=False):
        chosen = b
    else:
        return None
    if chosen.shape != node.shape:
        chosen = apply("broadcast_to", chosen, shape=node.shape)
    return in_place_of(node, chosen)


def same_cast(node: Node) -> Node | None:
    """Drop a cast to the dtype that a tensor has."""
    return in_place_of(node, node.inputs[0])


def sum_over_one(node: Node) -> Node | None:
    """Replace a sum over axes of extent 1 by a reshape; drop one over no axes."""
    (x,) = node.inputs
    if any(x.shape[axis] != 1 for axis in node.attrs["axes"]):
        return None
    return apply("reshape", x, shape=node.shape) if node.attrs["axes"] else x
