"""The ops as users call them: NumPy's names and meaning on symbolic tensors; what NumPy has no name for.

Axes are instance axes: axis 0 is the first axis of one example's tensor, negative axes count
from the end, and the batch axis is never seen. Every function takes symbolic tensors,
parameters, arrays or numbers and raises GraphError where types do not fit. The elements of a
sequence have a batch axis of their own. What is the same for a call meets them in any op, and
`sum_elements` and the like lead back from them to the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log as log_of_number
from math import pi
from typing import Any

import numpy as np

from foldbatch.errors import GraphError
from foldbatch.operators import numpys, plain_operands, public
from foldbatch.static.graph import Node, TensorLike, apply, constant, lift, matmul, slice_of
from foldbatch.static.op import CALL, fail
from foldbatch.static.ops.random import KEY, SITES
from foldbatch.static.ops.rows import gather, segment_position
from foldbatch.static.ops.shape import as_node, axis_of, expand_dims, pad, reshape, transpose, wholes
from foldbatch.types import TensorType, describe_value, truth


def _as_bool(x: TensorLike, op: str) -> Node:
    node = as_node(x, op)
    if node.dtype != "bool":
        fail(op, "a bool tensor", str(node.type), "compare first, for example x > 0")
    return node


def _axes(x: Node, axis: int | Sequence[int] | None, op: str) -> tuple[int, ...]:
    """Return axes, counted from 0 and sorted; None stands for all."""
    if axis is None:
        return tuple(range(x.ndim))
    axes = tuple(sorted(axis_of(x, a, op) for a in (axis if np.iterable(axis) else [axis])))
    if len(set(axes)) < len(axes):
        fail(op, "each axis once", str(axis))
    return axes


def _wide(node: Node) -> Node:
    """Return integers as int64, in which their sums have room."""
    return apply("cast", node, dtype="int64") if node.dtype == "int32" else node


def _reduced(name: str, x: TensorLike, axis: int | Sequence[int] | None, keepdims: bool) -> Node:  # noqa: FBT001
    node = as_node(x, name)
    axes = _axes(node, axis, name)
    result = apply("sum", node, axes=axes) if axes else node
    return _kept(name, result, node, axes, keepdims)


def _kept(name: str, result: Node, x: Node, axes: tuple[int, ...], keepdims: bool) -> Node:  # noqa: FBT001
    """Return a result with the reduced axes of `x` as axes of extent 1, if `keepdims` asks for them."""
    flag = bool(keepdims) if type(keepdims) is int and keepdims in (0, 1) else keepdims  # NumPy takes them
    if not truth(f"ops.{name} keepdims", flag, GraphError, "True keeps axes of extent 1"):
        return result
    return reshape(result, tuple(1 if a in axes else extent for a, extent in enumerate(x.shape)))


def _compared(name: str, a: TensorLike, b: TensorLike) -> Node:
    """Return a comparison; integers of two dtypes are compared in the wider one, where none loses digits."""
    x, y = lift(name, (a, b))
    integers = [node.dtype.startswith("int") for node in (x, y)]
    if all(integers) and x.dtype != y.dtype:
        x, y = cast(x, "int64"), cast(y, "int64")
    return apply(name, x, y)


@numpys
@plain_operands("numbers")
def add(*xs: TensorLike) -> Node:
    """Return the sum of any number of tensors."""
    return apply("add", *xs)


@numpys
@plain_operands("numbers")
def subtract(a: TensorLike, b: TensorLike) -> Node:
    """Return a - b."""
    return apply("subtract", a, b)


@numpys
@plain_operands("numbers")
def multiply(a: TensorLike, b: TensorLike) -> Node:
    """Return a * b, elementwise."""
    return apply("multiply", a, b)


@numpys
@plain_operands("numbers")
def divide(a: TensorLike, b: TensorLike) -> Node:
    """Return a / b."""
    return apply("divide", a, b)


@numpys
def negative(x: TensorLike) -> Node:
    """Return -x."""
    return apply("negative", x)


@numpys
def abs(x: TensorLike) -> Node:
    """Return the absolute value."""
    return apply("abs", x)


@numpys
def sign(x: TensorLike) -> Node:
    """Return -1, 0 or 1; no gradient flows through it."""
    return apply("sign", x)


@numpys
def square(x: TensorLike) -> Node:
    """Return x * x."""
    return apply("square", x)


@numpys
def sqrt(x: TensorLike) -> Node:
    """Return the square root."""
    return apply("sqrt", x)


@numpys
def exp(x: TensorLike) -> Node:
    """Return e to the x."""
    return apply("exp", x)


@numpys
def log(x: TensorLike) -> Node:
    """Return the natural logarithm."""
    return apply("log", x)


@numpys
def sin(x: TensorLike) -> Node:
    """Return the sine of an angle in radians."""
    return apply("sin", x)


@numpys
def cos(x: TensorLike) -> Node:
    """Return the cosine of an angle in radians."""
    return apply("cos", x)


@numpys
def tanh(x: TensorLike) -> Node:
    """Return the hyperbolic tangent."""
    return apply("tanh", x)


@public
def sigmoid(x: TensorLike) -> Node:
    """Return 1 / (1 + exp(-x)), computed without overflow."""
    return apply("sigmoid", x)


@public
def log_sigmoid(x: TensorLike) -> Node:
    """Return log(sigmoid(x)), finite wherever x is: -log(1 + exp(-x)).

    With x the logit of class 1, a classifier's loss is ``-log_sigmoid(x)`` for that class, else
    ``-log_sigmoid(-x)``.
    """
    return -softplus(-as_node(x, "log_sigmoid"))


@public
def relu(x: TensorLike) -> Node:
    """Return max(x, 0); the gradient at 0 is 0."""
    return apply("relu", x)


@public
def gelu(x: TensorLike) -> Node:
    """Return the Gaussian error linear unit in its tanh form, within 5e-4 of ``x * Phi(x)``.

    NumPy has no erf, so the exact form is out of reach.

    Source: Hendrycks and Gimpel 2016 (Gaussian error linear units), section 2.
    """
    node = as_node(x, "gelu")
    near = clip(node, -10.0, 10.0)  # beyond, tanh is -1 or 1, and the cube would become infinite
    return 0.5 * node * (1.0 + tanh((2 / pi) ** 0.5 * (near + 0.044715 * (near * square(near)))))


@public
def softplus(x: TensorLike) -> Node:
    """Return log(1 + exp(x)), computed without overflow."""
    return apply("softplus", x)


@public
def power(x: TensorLike, exponent: TensorLike) -> Node:
    """Return x to a power; of the two, one is a number or a constant array of no axes."""
    fix = "where x > 0, write ops.exp(y * ops.log(x))"
    if isinstance(exponent, Node):
        if isinstance(x, Node) or not isinstance(x, int | float | np.number) or x <= 0:
            actual = f"{x.type if isinstance(x, Node) else x} to the power of {exponent.type}"
            fail("power", "a number as exponent, or one above 0 as base", actual, fix)
        return exp(exponent * log_of_number(float(x)))
    if not isinstance(exponent, int | float | np.number):
        fail("power", "a number as exponent", describe_value(exponent), fix)
    if exponent in (2, 0.5):  # as NumPy has it
        return apply("square" if exponent == 2 else "sqrt", as_node(x, "power"))
    return apply("power", as_node(x, "power"), exponent=float(exponent))


@numpys
def floor(x: TensorLike) -> Node:
    """Return the largest whole number that is not above x, as a float; no gradient flows through it."""
    return apply("floor", x)


@numpys
def round(x: TensorLike) -> Node:
    """Return the nearest whole number as a float, of two the even one; no gradient flows through it."""
    return apply("round", x)


@public
def stop_gradient(x: TensorLike) -> Node:
    """Return x as a constant: it has numbers as they are, and no gradient flows through it.

    So a rounding trains as if it were none, which is called straight-through (Bengio et al. 2013):

    >>> rounded = lambda x: x + fb.ops.stop_gradient(fb.ops.round(x) - x)
    >>> (fb.Scalar() >> fb.Function(rounded)).eval(2.7)
    array(3., dtype=float32)
    """
    return apply("stop_gradient", as_node(x, "stop_gradient"))


@numpys
@plain_operands("numbers")
def floor_divide(a: TensorLike, b: TensorLike) -> Node:
    """Return the floor of the exact quotient of floats; no gradient flows through it."""
    return apply("floor_divide", a, b)


@numpys
@plain_operands("numbers")
def mod(a: TensorLike, b: TensorLike) -> Node:
    """Return the remainder ``a - floor_divide(a, b) * b`` of floats `a`, with the sign of `b`."""
    return apply("mod", a, b)


@numpys
@plain_operands("numbers")
def clip(x: TensorLike, low: TensorLike | None = None, high: TensorLike | None = None) -> Node:
    """Return x with its elements held between two bounds, either of which may be left out.

    The gradient is that of x where it lies between them or on one, else 0.
    """
    node = as_node(x, "clip")
    if low is not None:
        node = maximum(node, low)
    return node if high is None else minimum(node, high)


@numpys
@plain_operands("numbers")
def minimum(a: TensorLike, b: TensorLike) -> Node:
    """Return the smaller of each pair; at a tie the gradient goes to `a`."""
    return apply("minimum", a, b)


@numpys
@plain_operands("numbers")
def maximum(a: TensorLike, b: TensorLike) -> Node:
    """Return the larger of each pair; at a tie the gradient goes to `a`."""
    return apply("maximum", a, b)


@numpys
@plain_operands("numbers")
def less(a: TensorLike, b: TensorLike) -> Node:
    """Return a < b as bool."""
    return _compared("less", a, b)


@numpys
@plain_operands("numbers")
def less_equal(a: TensorLike, b: TensorLike) -> Node:
    """Return a <= b as bool."""
    return _compared("less_equal", a, b)


@numpys
@plain_operands("numbers")
def equal(a: TensorLike, b: TensorLike) -> Node:
    """Return a == b as bool."""
    return _compared("equal", a, b)


@numpys
@plain_operands("numbers")
def not_equal(a: TensorLike, b: TensorLike) -> Node:
    """Return a != b as bool."""
    return logical_not(equal(a, b))


@numpys
@plain_operands("numbers")
def greater(a: TensorLike, b: TensorLike) -> Node:
    """Return a > b as bool."""
    return _compared("less", b, a)


@numpys
@plain_operands("numbers")
def greater_equal(a: TensorLike, b: TensorLike) -> Node:
    """Return a >= b as bool."""
    return _compared("less_equal", b, a)


@numpys
def logical_not(x: TensorLike) -> Node:
    """Return whether a bool is False."""
    return apply("equal", _as_bool(x, "logical_not"), False)  # noqa: FBT003 - the number 0 of bools


@numpys
def logical_and(a: TensorLike, b: TensorLike) -> Node:
    """Return whether both bools are True."""
    return apply("where", _as_bool(a, "logical_and"), _as_bool(b, "logical_and"), constant(value=False))


@numpys
def logical_or(a: TensorLike, b: TensorLike) -> Node:
    """Return whether at least one of two bools is True."""
    return apply("where", _as_bool(a, "logical_or"), constant(value=True), _as_bool(b, "logical_or"))


@numpys
@plain_operands("numbers")
def where(condition: TensorLike, a: TensorLike, b: TensorLike) -> Node:
    """Return `a` where the condition holds, else `b`."""
    return apply("where", condition, *lift("where", (a, b)))  # numbers must not take the condition's dtype


@public
def cast(x: TensorLike, dtype: Any) -> Node:
    """Return `x` in another dtype; gradients flow between float dtypes.

    Floats are cut to whole numbers, at most the limits of the integer dtype; NaN is 0. Integers wrap around.
    """
    node = as_node(x, "cast")
    name = TensorType((), dtype).dtype
    return node if node.dtype == name else apply("cast", node, dtype=name)


@numpys
def sum(x: TensorLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Node:
    """Return the sum over instance axes (all of them by default); of integers in int64, as NumPy does."""
    return _reduced("sum", _wide(as_node(x, "sum")), axis, keepdims)


@numpys
def mean(x: TensorLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Node:
    """Return the mean over instance axes (all of them by default)."""
    node = as_node(x, "mean")
    if not node.type.is_float:
        fail("mean", "a float tensor", str(node.type), "cast with ops.cast(x, 'float32')")
    count = 1
    for a in _axes(node, axis, "mean"):
        count *= node.shape[a]
    if count == 0:
        fail("mean", "at least one element", str(node.type))
    return _reduced("mean", node, axis, keepdims) * (1.0 / count)


@numpys
def max(x: TensorLike, axis: int | None = None, *, keepdims: bool = False) -> Node:
    """Return the maximum along one axis, or of all elements; at a tie the gradient goes to the first."""
    node = as_node(x, "max")
    if axis is None:
        result = apply("max", reshape(node, -1), axis=0)
        return _kept("max", result, node, _axes(node, None, "max"), keepdims)
    place = axis_of(node, axis, "max")
    result = apply("max", node, axis=place)
    return _kept("max", result, node, (place,), keepdims)


@numpys
def min(x: TensorLike, axis: int | None = None, *, keepdims: bool = False) -> Node:
    """Return the minimum over an instance axis (all of them by default); the gradient goes to the first."""
    node = as_node(x, "min")
    axis = axis if axis is None else axis_of(node, axis, "min")
    if node.type.is_float or node.dtype == "bool":
        return negative(max(negative(node), axis, keepdims=keepdims))
    return -1 - max(-1 - node, axis, keepdims=keepdims)  # the least integer has no negative


@numpys
def argmax(x: TensorLike, axis: int | None = None) -> Node:
    """Return the index (int64) of the first maximum along an axis, or among all elements in order."""
    node = as_node(x, "argmax")
    if axis is None:
        return apply("argmax", reshape(node, -1), axis=0)
    return apply("argmax", node, axis=axis_of(node, axis, "argmax"))


@public
def softmax(x: TensorLike, axis: int = -1) -> Node:
    """Return exp(x) normalised to sum to 1 along an axis, stable for large x."""
    node = as_node(x, "softmax")
    return apply("softmax", node, axis=axis_of(node, axis, "softmax"))


@public
def log_softmax(x: TensorLike, axis: int = -1) -> Node:
    """Return log(softmax(x)) along an axis, finite wherever x is."""
    node = as_node(x, "log_softmax")
    return apply("log_softmax", node, axis=axis_of(node, axis, "log_softmax"))


@public
def logsumexp(x: TensorLike, axis: int = -1) -> Node:
    """Return log(sum(exp(x))) along an axis, stable for large x."""
    node = as_node(x, "logsumexp")
    return apply("logsumexp", node, axis=axis_of(node, axis, "logsumexp"))


@public
@plain_operands("labels")
def cross_entropy(
    logits: TensorLike, label: TensorLike, *, weights: TensorLike | None = None, smoothing: float = 0.0
) -> Node:
    """Return -log softmax(logits)[label]: logits ``[..., classes]``, integer labels ``[...]``.

    Args:
        logits: scores of the classes, which need not be normalised.
        label: the number of the right class; of two classes it may be a bool, False for the first. Where it
            is None there is no entropy but None, which `foldbatch.loss` takes for nothing.
        weights: ``[classes]``, what the loss of each class is multiplied by; an array or a parameter.
        smoothing: from 0 to 1, the share of the loss that is the mean over all classes (each times its
            weight), as if every class were the right one; the rest is that of the label.

    Raises:
        GraphError: when shapes or dtypes do not fit, or `smoothing` is out of range.

    Source of `smoothing`: Szegedy et al. 2016, section 7, in the form of torch.nn.functional.cross_entropy
    for one item.
    """
    if label is None:
        return None
    node = as_node(label, "cross_entropy")
    if node.dtype == "bool" and as_node(logits, "cross_entropy").shape[-1:] == (2,):
        node = cast(node, "int32")
    share: object = smoothing
    if not isinstance(share, int | float | np.number) or not 0 <= share <= 1:
        fail("cross_entropy", "smoothing from 0 to 1", describe_value(smoothing), "0.1 is usual")
    (scores,) = lift("cross_entropy", (logits,))
    if scores.axis.rank > CALL.rank and not scores.ndim:
        fix = "over the elements of a list goes -ops.gather(ops.segment_log_softmax(scores), label)"
        fail(
            "cross_entropy",
            "float logits, one per class",
            f"a {scores.type} for every element of a list",
            fix,
        )
    loss = apply("cross_entropy", scores, node)
    scores, class_weights = loss.inputs[0], None
    if weights is not None:
        factors = as_node(weights, "cross_entropy")
        if factors.shape != scores.shape[-1:]:
            expected = f"a weight for each of {scores.shape[-1]} classes"
            fail("cross_entropy", expected, str(factors.type), "give a vector")
        class_weights = cast(factors, loss.dtype)
        loss = loss * gather(class_weights, node)
    if not smoothing:
        return loss
    chances = log_softmax(scores)
    all_classes = mean(chances if class_weights is None else chances * class_weights, axis=-1)
    return (1 - smoothing) * loss - smoothing * all_classes


@public
@plain_operands("labels")
def binary_cross_entropy(logits: TensorLike, label: TensorLike) -> Node:
    """Return -log of the chance that a label has, by the sigmoid of its logit: of each element, ``[...]``.

    So a sum or mean of it over classes is the loss where several classes may be right.

    Args:
        logits: scores, one for each label.
        label: of the logits' shape, 1 for yes and 0 for no, bools, or chances in between. Where it is None
            there is no entropy but None, which `foldbatch.loss` takes for nothing.

    Raises:
        GraphError: when shapes or dtypes do not fit.
    """
    if label is None:
        return None
    (scores,) = lift("binary_cross_entropy", (logits,))
    node = as_node(label, "binary_cross_entropy")
    if not scores.type.is_float or node.shape != scores.shape:
        expected, actual = "float logits, and labels of their shape", f"{scores.type} and {node.type}"
        fail("binary_cross_entropy", expected, actual, "give a number 0 or 1 for each logit")
    return softplus(scores) - scores * cast(node, scores.dtype)


@numpys
def dot(a: TensorLike, b: TensorLike) -> Node:
    """Return the inner product of two vectors, or the product of matrices as `matmul` does."""
    x, y = lift("dot", (a, b))
    if x.ndim == y.ndim == 1 and x.shape == y.shape:
        return sum(x * y)
    return matmul(x, y)


@public
def one_hot(ids: TensorLike, size: int, dtype: str = "float32") -> Node:
    """Return vectors of `size` that are 1 at the id; an id out of range is an error."""
    (size,) = wholes("one_hot", size)
    return apply("one_hot", ids, size=size, dtype=TensorType((), dtype).dtype)


@public
def segment_sum(x: TensorLike) -> Node:
    """Return, per call, the sum over the elements of its sequence; zero for an empty one.

    Integers are summed in int64, which smaller ones would leave.
    """
    return apply("segment_sum", _wide(as_node(x, "segment_sum")))


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

    >>> attend = fb.Function(lambda x: segment_sum(segment_softmax(x) * x))
    >>> (fb.Map(fb.Scalar()) >> attend).eval([2, 2, 2]).tolist()
    2.0
    """
    return apply("segment_softmax", x)


@public
def segment_logsumexp(x: TensorLike) -> Node:
    """Return, per call, log(sum(exp(x))) over the elements of its sequence, stable for large x.

    Shapes: ``[M, *]`` to ``[N, *]``; zero for an empty sequence, as other sums over sequences.

    Raises:
        GraphError: when `x` is not a float tensor of a sequence's elements.

    >>> (fb.Map(fb.Scalar()) >> fb.Function(segment_logsumexp)).eval([1000, 1000]).round(3)
    np.float32(1000.693)
    """
    return apply("segment_logsumexp", x)


@public
def segment_log_softmax(x: TensorLike) -> Node:
    """Return log(segment_softmax(x)), finite wherever x is.

    The loss of choosing among a list of candidates, whose scores are the list, is
    ``-gather(segment_log_softmax(scores), gold)``: a cross-entropy of as many classes as there are elements.

    Shapes: ``[M, *]`` to ``[M, *]``; each component is normalised by itself.

    Raises:
        GraphError: when `x` is not a float tensor of a sequence's elements.

    >>> right = fb.Function(lambda scores: -gather(segment_log_softmax(scores), 0))
    >>> (fb.Map(fb.Scalar()) >> right).eval([0, 5000])
    array(5000., dtype=float32)
    """
    return apply("segment_log_softmax", x)


@public
@plain_operands("shape")
def random(shape: int | Sequence[int], dtype: str = "float32") -> Node:
    """Return uniform numbers in [0, 1) of a shape, drawn anew for each call of the block and each `random`.

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
@plain_operands("shape")
def normal(shape: int | Sequence[int] = (), dtype: str = "float32") -> Node:
    """Draw numbers of a shape from the standard normal distribution: mean 0, variance 1.

    It draws as `random` does, other numbers for each call of the block and each `normal`. A variable of mean
    m and deviation s is ``m + s * normal(shape)``, through which gradients reach m and s, as variational
    autoencoders need it. No number lies beyond 5.8. ``ops.random.normal`` is the same function.

    Raises:
        BlockTypeError: when the shape is not of whole numbers of 0 or more.
        GraphError: when the dtype is not a float's.

    Source: Box and Muller 1958 (A note on the generation of random normal deviates).

    >>> program = fb.compile(lambda example: fb.ops.normal((1000,)), "numpy")
    >>> (numbers,) = program.run([0])
    >>> bool(-0.1 < numbers.mean() < 0.1), bool(0.9 < numbers.std() < 1.1)
    (True, True)
    """
    radius, angle = random(shape, dtype), random(shape, dtype)
    return sqrt(-2.0 * log(1.0 - radius)) * cos(2 * pi * angle)


random.normal = normal  # type: ignore[attr-defined]  # as NumPy's users look for it


@public
def sample(logits: TensorLike) -> Node:
    """Draw a class for each call: its index (int64), with the chances softmax(logits) along the last axis.

    Logits ``[..., classes]`` give ``[...]``; chances p are given as ``log(p)``. It draws as `random` does:
    one example and step draw the same again. No gradient flows through it; ``-cross_entropy(logits, drawn)``
    is the logarithm of the chance of what was drawn, whose gradient REINFORCE needs.

    Raises:
        GraphError: when the logits are no floats, or have no axis.

    Source: Gumbel 1954 (Statistical Theory of Extreme Values): the largest of logits plus Gumbel noise.

    >>> drawn = fb.compile(lambda logits: fb.ops.sample(fb.tensor(logits)), "numpy").run([[0.0, 0.0]] * 100)
    >>> 30 < [int(x) for x in drawn].count(1) < 70
    True
    """
    node = as_node(logits, "sample")
    if not node.type.is_float or not node.shape:
        fail("sample", "floats along one axis or more", str(node.type), "give the scores of the classes")
    drawn = apply("random", key_of(node), shape=node.shape, site=next(SITES), dtype=node.dtype)
    uniform = maximum(drawn, 2.0**-25)  # which has a logarithm
    return argmax(node - log(-log(uniform)), axis=-1)


@public
def when_training(a: TensorLike, b: TensorLike) -> Node:
    """Return `a` while training and `b` in inference; both are of one type.

    Gradients are those of training. A number takes the dtype of the other, which must then be a scalar.

    Raises:
        GraphError: when the types differ.

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


@numpys
def argsort(x: TensorLike, axis: int = -1) -> Node:
    """Return the indices that sort an axis: ``x: [..., n]`` to ``int64[..., n]``.

    Equal elements stay in order, and NaN comes last, as in ``np.argsort(x, axis, kind="stable")``. Indices
    have no gradient.

    >>> (fb.Vector(3) >> fb.Function(argsort)).eval([2, 3, 1])
    array([2, 0, 1])
    """
    node, last = _last(as_node(x, "argsort"), axis, "argsort")
    return _back(_ordered(last, last.shape[-1])[1], node, axis)


@numpys
def sort(x: TensorLike, axis: int = -1) -> Node:
    """Return a tensor whose elements ascend along an axis, NaN last, as ``np.sort`` does.

    A gradient goes to the element that came to its place.

    >>> (fb.Vector(3) >> fb.Function(sort)).eval([2, 3, 1])
    array([1., 2., 3.], dtype=float32)
    """
    node, last = _last(as_node(x, "sort"), axis, "sort")
    return _back(_ordered(last, last.shape[-1])[0], node, axis)


@public
def topk(x: TensorLike, k: int, axis: int = -1) -> tuple[Node, Node]:
    """Return the `k` greatest elements of an axis, greatest first, and their indices (int64).

    Of equal elements the first counts as greater; NaN is the greatest, as in ``torch.topk``.

    >>> (fb.Vector(4) >> fb.Function(lambda x: topk(x, 2))).eval([2, 4, 1, 3])
    (array([4., 3.], dtype=float32), array([1, 3]))
    """
    node, last = _last(as_node(x, "topk"), axis, "topk")
    extent = last.shape[-1]
    number: object = k
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 1 <= number <= extent:
        fail("topk", f"an int from 1 to {extent} as k", describe_value(k), f"the axis has {extent} elements")
    values, places = _ordered(last, int(k), descending=True)
    return _back(values, node, axis), _back(places, node, axis)


@numpys
def cumsum(x: TensorLike, axis: int | None = None) -> Node:
    """Return running sums along an axis, or over all elements, as ``np.cumsum`` does: of integers in int64.

    >>> (fb.Vector(3) >> fb.Function(cumsum)).eval([1, 2, 3])
    array([1., 3., 6.], dtype=float32)
    """
    node = _wide(as_node(x, "cumsum"))
    if axis is None:
        node, axis = reshape(node, (-1,)), 0
    place = axis_of(node, axis, "cumsum")
    total, step, extent = node, 1, node.shape[place]
    while step < extent:  # after each turn an element is the sum of twice as many
        above = slice_of(total, place, 0, extent - step)
        total, step = add(total, pad(above, step, 0, place)), 2 * step
    return total


@public
def norm(x: TensorLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Node:
    """Return the Euclidean norm over instance axes, all by default; at zero its gradient is zero.

    It neither overflows nor vanishes where the squares of elements would.

    >>> (fb.Vector(2) >> fb.Function(norm)).eval([3, 4])
    array(5., dtype=float32)
    >>> (fb.Vector(2) >> fb.Function(norm)).eval([3e30, 4e30])
    array(5.e+30, dtype=float32)
    """
    node = as_node(x, "norm")
    if not node.type.is_float:
        fail("norm", "a float tensor", str(node.type), "cast with ops.cast(x, 'float32')")
    axes = _axes(node, axis, "norm")
    scale = _scale_of(node, axes)
    squares = sum(square(node * scale), axis, keepdims=True)
    zero = equal(squares, 0.0)
    # where it is 0, the infinite derivative of the root is kept away
    result = where(zero, 0.0, sqrt(where(zero, 1.0, squares)) / scale)
    shape = tuple(extent for a, extent in enumerate(node.shape) if a not in axes)
    return _kept("norm", reshape(result, shape), node, axes, keepdims)


# By dtype, exponents of 2: numbers beyond the first have squares that may overflow or vanish; they are
# multiplied by the second if they are large, by the third if they are small.
_SCALES = {"float32": (50, -80, 100), "float64": (400, -600, 600)}


def _scale_of(x: Node, axes: tuple[int, ...]) -> Node:
    """Return a power of 2, by which the squares along axes can be added: 1 for usual numbers.

    The axes are kept, of extent 1.
    """
    largest = abs(stop_gradient(x))
    for axis in axes:
        if not x.shape[axis]:
            return constant(
                np.ones([1 if a in axes else extent for a, extent in enumerate(x.shape)]), x.dtype
            )
        largest = max(largest, axis, keepdims=True)
    usual, shrinks, grows = (2.0**exponent for exponent in _SCALES[x.dtype])
    unit = constant(1, x.dtype)
    return where(largest < 1 / usual, grows * unit, where(largest > usual, shrinks * unit, unit))


def key_of(x: Node) -> Node:
    """Return the key for random draws of a tensor: its call's, or one for each element of a list."""
    return KEY + segment_position(x) if x.axis.rank > CALL.rank else KEY


def _last(x: Node, axis: int, op: str) -> tuple[Node, Node]:
    place = axis_of(x, axis, op)
    if x.dtype == "bool":
        fail(op, "numbers", str(x.type), "use ops.cast(x, 'int32')")
    return x, transpose(x, [*(a for a in range(x.ndim) if a != place), place])


def _back(result: Node, x: Node, axis: int) -> Node:
    """Return a result whose last axis is moved back to its place in `x`."""
    place, last = axis_of(x, axis, "transpose"), x.ndim - 1
    return transpose(result, [*range(place), last, *range(place, last)])


def _ordered(x: Node, count: int, *, descending: bool = False) -> tuple[Node, Node]:
    """Return the first elements of the last axis, in order, and their places; both ``[..., count]``."""
    places = apply("order", x, count=count, descending=descending)
    wide = apply("broadcast_to", expand_dims(x, -2), shape=(*places.shape, x.shape[-1]))
    return apply("pick", wide, places), places
