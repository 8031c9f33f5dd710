"""Sorting, the greatest elements and running sums, along an axis whose extent is known.

Each is made of ops that every engine has, so it has their derivatives. Sorting compares all pairs of an axis:
n elements take n * n comparisons a call, which suits axes of some hundred elements.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldbatch.operators import numpys, public
from foldbatch.static.graph import Node, TensorLike, constant
from foldbatch.static.op import fail
from foldbatch.static.ops import functions as f
from foldbatch.static.ops.shape import as_node, axis_of, expand_dims, pad, reshape, transpose
from foldbatch.types import describe_value


@numpys
def argsort(x: TensorLike, axis: int = -1) -> Node:
    """Return the indices that sort an axis: ``x: [..., n]`` to ``int64[..., n]``.

    Equal elements stay in order, and NaN comes last, as in ``np.argsort(x, axis, kind="stable")``. Indices
    have no gradient.

    >>> from foldbatch.blocks import Function, Vector
    >>> (Vector(3) >> Function(argsort)).eval([2, 3, 1])
    array([2, 0, 1])
    """
    node, last = _last(as_node(x, "argsort"), axis, "argsort")
    return _back(f.argmax(f.cast(_places(last, descending=False), "int32"), axis=-1), node, axis)


@numpys
def sort(x: TensorLike, axis: int = -1) -> Node:
    """Return a tensor whose elements ascend along an axis, NaN last, as ``np.sort`` does.

    A gradient goes to the element that came to its place.

    >>> from foldbatch.blocks import Function, Vector
    >>> (Vector(3) >> Function(sort)).eval([2, 3, 1])
    array([1., 2., 3.], dtype=float32)
    """
    node, last = _last(as_node(x, "sort"), axis, "sort")
    return _back(_picked(_places(last, descending=False), last), node, axis)


@public
def topk(x: TensorLike, k: int, axis: int = -1) -> tuple[Node, Node]:
    """Return the `k` greatest elements of an axis, greatest first, and their indices (int64).

    Of equal elements the first counts as greater; NaN is the greatest, as in ``torch.topk``.

    >>> from foldbatch.blocks import Function, Vector
    >>> (Vector(4) >> Function(lambda x: topk(x, 2))).eval([2, 4, 1, 3])
    (array([4., 3.], dtype=float32), array([1, 3]))
    """
    node, last = _last(as_node(x, "topk"), axis, "topk")
    extent = last.shape[-1]
    if type(k) is not int or not 1 <= k <= extent:
        fail("topk", f"an int from 1 to {extent} as k", describe_value(k), f"the axis has {extent} elements")
    places = _places(last, descending=True)[..., :k, :]
    return _back(_picked(places, last), node, axis), _back(f.argmax(f.cast(places, "int32"), -1), node, axis)


@numpys
def cumsum(x: TensorLike, axis: int | None = None) -> Node:
    """Return running sums along an axis, or over all elements, as ``np.cumsum`` does.

    >>> from foldbatch.blocks import Function, Vector
    >>> (Vector(3) >> Function(cumsum)).eval([1, 2, 3])
    array([1., 3., 6.], dtype=float32)
    """
    node = as_node(x, "cumsum")
    if axis is None:
        node, axis = reshape(node, (-1,)), 0
    place = axis_of(node, axis, "cumsum")
    total, step, extent = node, 1, node.shape[place]
    while step < extent:  # after each turn an element is the sum of twice as many
        above = total[(slice(None),) * place + (slice(0, extent - step),)]
        total, step = f.add(total, pad(above, step, 0, place)), 2 * step
    return total


@public
def norm(x: TensorLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Node:
    """Return the Euclidean norm over instance axes, all by default; at zero its gradient is zero.

    >>> from foldbatch.blocks import Function, Vector
    >>> (Vector(2) >> Function(norm)).eval([3, 4])
    array(5., dtype=float32)
    """
    squares = f.sum(f.square(x), axis, keepdims=keepdims)
    zero = f.equal(squares, 0.0)
    # where it is 0, the infinite derivative of the root is kept away
    return f.where(zero, 0.0, f.sqrt(f.where(zero, 1.0, squares)))


def _last(x: Node, axis: int, op: str) -> tuple[Node, Node]:
    """Return a tensor, and the same with an axis moved to the end."""
    place = axis_of(x, axis, op)
    if x.dtype == "bool":
        fail(op, "numbers", str(x.type), "use ops.cast(x, 'int32')")
    return x, transpose(x, [*(a for a in range(x.ndim) if a != place), place])


def _back(result: Node, x: Node, axis: int) -> Node:
    """Return a result whose last axis is moved to where it was in `x`."""
    place, last = axis_of(x, axis, "transpose"), x.ndim - 1
    return transpose(result, [*range(place), last, *range(place, last)])


def _places(x: Node, *, descending: bool) -> Node:
    """Return whether element i comes to place p: ``x: [..., n]`` to ``bool[..., p, i]``."""
    extent = x.shape[-1]
    mine, other = expand_dims(x, -1), expand_dims(x, -2)  # [..., i, 1] and [..., 1, j]
    comes_before, equal = (f.greater if descending else f.less)(other, mine), f.equal(other, mine)
    if x.type.is_float:
        my_nan, other_nan = f.not_equal(mine, mine), f.not_equal(other, other)
        one, two = (other_nan, my_nan) if descending else (my_nan, other_nan)
        comes_before = f.logical_or(comes_before, f.logical_and(one, f.logical_not(two)))
        equal = f.logical_or(equal, f.logical_and(my_nan, other_nan))
    earlier = constant(np.tri(extent, k=-1, dtype=bool))  # j < i
    before = f.logical_or(comes_before, f.logical_and(equal, earlier))
    rank = f.sum(f.cast(before, "int32"), axis=-1)  # [..., i]
    return f.equal(expand_dims(rank, -2), constant(np.arange(extent, dtype="int32")[:, None]))


def _picked(places: Node, x: Node) -> Node:
    """Return at each place the element that comes there; no other, were it infinite, touches it."""
    zero = constant(np.zeros((), x.dtype))
    return f.sum(f.where(places, expand_dims(x, -2), zero), axis=-1)
