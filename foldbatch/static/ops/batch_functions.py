"""The ops as users call them, where NumPy has no name for them: calls, their sequences and their keys.

The elements of a sequence have a batch axis of their own. What is the same for a call meets them
in any op, and these functions lead back from them to the call.
"""

from __future__ import annotations

from collections.abc import Sequence

from foldbatch.operators import public
from foldbatch.static.graph import Node, TensorLike, apply, constant, lift
from foldbatch.static.op import CALL, fail
from foldbatch.static.ops.functions import argmax, log, maximum
from foldbatch.static.ops.random import KEY, SITES
from foldbatch.static.ops.shape_functions import as_node
from foldbatch.types import TensorType


@public
def segment_sum(x: TensorLike) -> Node:
    """Return, per call, the sum over the elements of its sequence; zero for an empty one."""
    return apply("segment_sum", x)


@public
def segment_max(x: TensorLike) -> Node:
    """Return, per call, the maximum over the elements of its sequence; zero for an empty one.

    At a tie the gradient goes to the first.
    """
    return apply("segment_max", x)


@public
def segment_min(x: TensorLike) -> Node:
    """Return, per call, the minimum over the elements of its sequence; zero for an empty one.

    At a tie the gradient goes to the first.
    """
    (node,) = lift("segment_min", (x,))
    if node.type.is_float or node.dtype == "bool":
        return 0 - segment_max(-node)  # not -0.0 for an empty one
    least = -1 - segment_max(-1 - node)  # the least integer has no negative
    filled = segment_sum(apply("batch", constant(1, node.dtype), axis=node.axis)) > 0
    return apply("where", filled, least, constant(0, node.dtype))


@public
def segment_mean(x: TensorLike) -> Node:
    """Return, per call, the mean over the elements of its sequence; zero for an empty one."""
    (node,) = lift("segment_mean", (x,))
    if not node.type.is_float:
        fail("segment_mean", "a float tensor", str(node.type), "cast with ops.cast(x, 'float32')")
    total = segment_sum(node)
    count = segment_sum(apply("batch", constant(1, node.dtype), axis=node.axis))
    return total / apply("maximum", count, 1)


@public
def segment_softmax(x: TensorLike) -> Node:
    """Return exp(x) normalised to sum to 1 over the elements of each call's sequence, stable for large x.

    Shapes: ``[M, *]`` to ``[M, *]``; each component is normalised by itself.

    Raises:
        GraphError: when `x` is not a float tensor of a sequence's elements.

    >>> import foldbatch as fb
    >>> attend = fb.Function(lambda x: segment_sum(segment_softmax(x) * x))
    >>> (fb.Map(fb.Scalar()) >> attend).eval([2, 2, 2]).tolist()
    2.0
    """
    return apply("segment_softmax", x)


@public
def random(shape: int | Sequence[int], dtype: str = "float32") -> Node:
    """Return uniform numbers in [0, 1) of a shape, other ones for each call of the block and each `random`.

    They are a function of the call's `KEY`, so the same call of the same program with the same key
    draws the same numbers again. No gradient reaches the key.

    Raises:
        BlockTypeError: when the shape is not of whole numbers of 0 or more.
        GraphError: when the dtype is not a float's.

    >>> random((3,)) is random((3,))
    False
    """
    type_ = TensorType(tuple(shape) if isinstance(shape, Sequence) else (shape,), dtype)
    return apply("random", KEY, shape=type_.shape, site=next(SITES), dtype=type_.dtype)


@public
def sample(logits: TensorLike) -> Node:
    """Draw a class for each call: its index (int64), with the chances softmax(logits) along the last axis.

    Logits ``[..., classes]`` give ``[...]``; chances p are given as ``log(p)``. It draws as `random` does:
    one example and step draw the same again. No gradient flows through it; ``-cross_entropy(logits, drawn)``
    is the logarithm of the chance of what was drawn, whose gradient REINFORCE needs.

    Raises:
        GraphError: when the logits are no floats, or have no axis.

    Source: Gumbel 1954 (Statistical Theory of Extreme Values): the largest of logits plus Gumbel noise.

    >>> import foldbatch as fb
    >>> drawn = fb.compile(lambda logits: fb.ops.sample(fb.tensor(logits)), "numpy").run([[0.0, 0.0]] * 100)
    >>> 30 < [int(x) for x in drawn].count(1) < 70
    True
    """
    node = as_node(logits, "sample")
    if not node.type.is_float or not node.shape:
        fail("sample", "floats along one axis or more", str(node.type), "give the scores of the classes")
    uniform = maximum(random(node.shape, node.dtype), 2.0**-25)  # which has a logarithm
    return argmax(node - log(-log(uniform)), axis=-1)


@public
def when_training(a: TensorLike, b: TensorLike) -> Node:
    """Return `a` while training and `b` in inference; both are of one type.

    Gradients are those of training. A number takes the dtype of the other, which must then be a scalar.

    Raises:
        GraphError: when the types differ.

    >>> import foldbatch as fb
    >>> program = fb.compile(fb.Scalar() >> fb.Function(lambda x: when_training(x * 0, x)) >> fb.Loss())
    >>> program.run([3.0], losses=True).loss, program.value_and_grad([3.0])[0]
    (3.0, 0.0)
    """
    return apply("when_training", a, b)


@public
def batched(x: TensorLike) -> Node:
    """Return `x` with a row per call; a single value for the whole batch is repeated."""
    (node,) = lift("batched", (x,))
    return node if node.axis.rank else apply("batch", node, axis=CALL)
