"""The ops as users call them: NumPy's names and meaning on symbolic tensors.

Axes are instance axes: axis 0 is the first axis of one example's tensor, negative axes count
from the end, and the batch axis is never seen. Every function takes symbolic tensors,
parameters, arrays or numbers and raises GraphError where types do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi
from typing import Any

from foldbatch.static.graph import Node, TensorLike, apply, constant, index, lift
from foldbatch.static.op import fail
from foldbatch.types import TensorType


def _as_node(x: TensorLike, op: str) -> Node:
    return lift(op, (x,))[0]


def _as_bool(x: TensorLike, op: str) -> Node:
    node = _as_node(x, op)
    if node.dtype != "bool":
        fail(op, "a bool tensor", str(node.type), "compare first, for example x > 0")
    return node


def _axis(x: Node, axis: int, op: str, *, extra: int = 0) -> int:
    rank = x.ndim + extra
    if rank == 0:
        fail(op, "a tensor of at least one axis", str(x.type))
    if not -rank <= axis < rank:
        fail(op, f"an axis from {-rank} to {rank - 1}", str(axis))
    return axis % rank


def _axes(x: Node, axis: int | Sequence[int] | None, op: str) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    axes = tuple(sorted(_axis(x, a, op) for a in ([axis] if isinstance(axis, int) else axis)))
    if len(set(axes)) < len(axes):
        fail(op, "each axis once", str(axis))
    return axes


def _reduced(name: str, x: TensorLike, axis: int | Sequence[int] | None, keepdims: bool) -> Node:  # noqa: FBT001
    node = _as_node(x, name)
    axes = _axes(node, axis, name)
    result = apply("sum", node, axes=axes) if axes else node
    return _keep(result, node, axes) if keepdims else result


def _keep(result: Node, x: Node, axes: tuple[int, ...]) -> Node:
    return reshape(result, tuple(1 if a in axes else extent for a, extent in enumerate(x.shape)))


def add(*xs: TensorLike) -> Node:
    """Return the sum of any number of tensors."""
    return apply("add", *xs)


def subtract(a: TensorLike, b: TensorLike) -> Node:
    """Return a - b."""
    return apply("subtract", a, b)


def multiply(a: TensorLike, b: TensorLike) -> Node:
    """Return a * b, elementwise."""
    return apply("multiply", a, b)


def divide(a: TensorLike, b: TensorLike) -> Node:
    """Return a / b."""
    return apply("divide", a, b)


def negative(x: TensorLike) -> Node:
    """Return -x."""
    return apply("negative", x)


def abs(x: TensorLike) -> Node:
    """Return the absolute value."""
    return apply("abs", x)


def sign(x: TensorLike) -> Node:
    """Return -1, 0 or 1; no gradient flows through it."""
    return apply("sign", x)


def square(x: TensorLike) -> Node:
    """Return x * x."""
    return apply("square", x)


def sqrt(x: TensorLike) -> Node:
    """Return the square root."""
    return apply("sqrt", x)


def exp(x: TensorLike) -> Node:
    """Return e to the x."""
    return apply("exp", x)


def log(x: TensorLike) -> Node:
    """Return the natural logarithm."""
    return apply("log", x)


def sin(x: TensorLike) -> Node:
    """Return the sine of an angle in radians."""
    return apply("sin", x)


def cos(x: TensorLike) -> Node:
    """Return the cosine of an angle in radians."""
    return apply("cos", x)


def tanh(x: TensorLike) -> Node:
    """Return the hyperbolic tangent."""
    return apply("tanh", x)


def sigmoid(x: TensorLike) -> Node:
    """Return 1 / (1 + exp(-x)), computed without overflow."""
    return apply("sigmoid", x)


def log_sigmoid(x: TensorLike) -> Node:
    """Return log(sigmoid(x)), finite wherever x is: -log(1 + exp(-x)).

    With x the logit of class 1, a classifier's loss is ``-log_sigmoid(x)`` for that class, else
    ``-log_sigmoid(-x)``.
    """
    return apply("log_sigmoid", x)


def relu(x: TensorLike) -> Node:
    """Return max(x, 0); the gradient at 0 is 0."""
    return apply("relu", x)


def gelu(x: TensorLike) -> Node:
    """Return the Gaussian error linear unit in its tanh form, within 5e-4 of ``x * Phi(x)``.

    NumPy has no erf, so the exact form is out of reach.

    Source: Hendrycks and Gimpel 2016 (Gaussian error linear units), section 2.
    """
    node = _as_node(x, "gelu")
    return 0.5 * node * (1.0 + tanh((2 / pi) ** 0.5 * (node + 0.044715 * (node * square(node)))))


def softplus(x: TensorLike) -> Node:
    """Return log(1 + exp(x)), computed without overflow."""
    return apply("softplus", x)


def power(x: TensorLike, exponent: float) -> Node:
    """Return x to a constant power."""
    return _as_node(x, "power") ** exponent


def minimum(a: TensorLike, b: TensorLike) -> Node:
    """Return the smaller of each pair; at a tie the gradient goes to `a`."""
    return apply("minimum", a, b)


def maximum(a: TensorLike, b: TensorLike) -> Node:
    """Return the larger of each pair; at a tie the gradient goes to `a`."""
    return apply("maximum", a, b)


def less(a: TensorLike, b: TensorLike) -> Node:
    """Return a < b as bool."""
    return apply("less", a, b)


def less_equal(a: TensorLike, b: TensorLike) -> Node:
    """Return a <= b as bool."""
    return apply("less_equal", a, b)


def equal(a: TensorLike, b: TensorLike) -> Node:
    """Return a == b as bool; the operator itself compares expressions by identity."""
    return apply("equal", a, b)


def not_equal(a: TensorLike, b: TensorLike) -> Node:
    """Return a != b as bool; the operator itself compares expressions by identity."""
    return logical_not(equal(a, b))


def greater(a: TensorLike, b: TensorLike) -> Node:
    """Return a > b as bool."""
    return apply("less", b, a)


def greater_equal(a: TensorLike, b: TensorLike) -> Node:
    """Return a >= b as bool."""
    return apply("less_equal", b, a)


def logical_not(x: TensorLike) -> Node:
    """Return whether a bool is False."""
    return apply("equal", _as_bool(x, "logical_not"), False)  # noqa: FBT003 - the number 0 of bools


def logical_and(a: TensorLike, b: TensorLike) -> Node:
    """Return whether both bools are True."""
    return apply("where", _as_bool(a, "logical_and"), _as_bool(b, "logical_and"), constant(value=False))


def logical_or(a: TensorLike, b: TensorLike) -> Node:
    """Return whether at least one of two bools is True."""
    return apply("where", _as_bool(a, "logical_or"), constant(value=True), _as_bool(b, "logical_or"))


def where(condition: TensorLike, a: TensorLike, b: TensorLike) -> Node:
    """Return `a` where the condition holds, else `b`."""
    return apply("where", condition, *lift("where", (a, b)))  # numbers must not take the condition's dtype


def cast(x: TensorLike, dtype: Any) -> Node:
    """Return `x` in another dtype; gradients flow between float dtypes."""
    node = _as_node(x, "cast")
    name = TensorType((), dtype).dtype
    return node if node.dtype == name else apply("cast", node, dtype=name)


def sum(x: TensorLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Node:
    """Return the sum over instance axes (all of them by default)."""
    return _reduced("sum", x, axis, keepdims)


def mean(x: TensorLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Node:
    """Return the mean over instance axes (all of them by default)."""
    node = _as_node(x, "mean")
    if not node.type.is_float:
        fail("mean", "a float tensor", str(node.type), "cast with ops.cast(x, 'float32')")
    count = 1
    for a in _axes(node, axis, "mean"):
        count *= node.shape[a]
    if count == 0:
        fail("mean", "at least one element", str(node.type))
    return _reduced("mean", node, axis, keepdims) * (1.0 / count)


def max(x: TensorLike, axis: int | None = None, *, keepdims: bool = False) -> Node:
    """Return the maximum along one axis, or of all elements; at a tie the gradient goes to the first."""
    node = _as_node(x, "max")
    if axis is None:
        result = apply("max", reshape(node, -1), axis=0)
        return _keep(result, node, _axes(node, None, "max")) if keepdims else result
    place = _axis(node, axis, "max")
    result = apply("max", node, axis=place)
    return _keep(result, node, (place,)) if keepdims else result


def min(x: TensorLike, axis: int | None = None, *, keepdims: bool = False) -> Node:
    """Return the minimum over an instance axis (all of them by default); the gradient goes to the first."""
    node = _as_node(x, "min")
    if node.type.is_float or node.dtype == "bool":
        return 0 - max(negative(node), axis, keepdims=keepdims)
    return -1 - max(-1 - node, axis, keepdims=keepdims)  # the least integer has no negative


def argmax(x: TensorLike, axis: int | None = None) -> Node:
    """Return the index (int64) of the first maximum along an axis, or among all elements in order."""
    node = _as_node(x, "argmax")
    if axis is None:
        return apply("argmax", reshape(node, -1), axis=0)
    return apply("argmax", node, axis=_axis(node, axis, "argmax"))


def softmax(x: TensorLike, axis: int = -1) -> Node:
    """Return exp(x) normalised to sum to 1 along an axis, stable for large x."""
    node = _as_node(x, "softmax")
    return apply("softmax", node, axis=_axis(node, axis, "softmax"))


def log_softmax(x: TensorLike, axis: int = -1) -> Node:
    """Return log(softmax(x)) along an axis, finite wherever x is."""
    node = _as_node(x, "log_softmax")
    return apply("log_softmax", node, axis=_axis(node, axis, "log_softmax"))


def logsumexp(x: TensorLike, axis: int = -1) -> Node:
    """Return log(sum(exp(x))) along an axis, stable for large x."""
    node = _as_node(x, "logsumexp")
    return apply("logsumexp", node, axis=_axis(node, axis, "logsumexp"))


def cross_entropy(logits: TensorLike, label: TensorLike) -> Node:
    """Return -log softmax(logits)[label]: logits ``[..., classes]``, integer labels ``[...]``."""
    return apply("cross_entropy", logits, _as_node(label, "cross_entropy"))


def one_hot(ids: TensorLike, size: int, dtype: str = "float32") -> Node:
    """Return vectors of `size` that are 1 at the id; an id out of range is an error."""
    return apply("one_hot", ids, size=int(size), dtype=TensorType((), dtype).dtype)


def gather(table: TensorLike, ids: TensorLike) -> Node:
    """Return rows of a table (a parameter or constant); an id out of range is an error."""
    return apply("gather", table, _as_node(ids, "gather"))


def reshape(x: TensorLike, shape: int | Sequence[int]) -> Node:
    """Return the elements in another shape; one extent may be -1."""
    node = _as_node(x, "reshape")
    sizes = [int(size) for size in ([shape] if isinstance(shape, int) else shape)]
    if any(size < -1 for size in sizes) or sizes.count(-1) > 1:
        fail("reshape", "extents of 0 or more, and -1 at most once", str(sizes))
    if -1 in sizes:
        rest = 1
        for size in sizes:
            rest *= size if size != -1 else 1
        sizes[sizes.index(-1)] = node.type.size // rest if rest else 0
    return node if tuple(sizes) == node.shape else apply("reshape", node, shape=tuple(sizes))


def transpose(x: TensorLike, axes: Sequence[int] | None = None) -> Node:
    """Return the tensor with its axes permuted, reversed by default."""
    node = _as_node(x, "transpose")
    if axes is None:
        return node.T
    return apply("transpose", node, axes=tuple(_axis(node, a, "transpose") for a in axes))


def expand_dims(x: TensorLike, axis: int) -> Node:
    """Return the tensor with a new axis of extent 1."""
    node = _as_node(x, "expand_dims")
    place = _axis(node, axis, "expand_dims", extra=1)
    return reshape(node, (*node.shape[:place], 1, *node.shape[place:]))


def squeeze(x: TensorLike, axis: int) -> Node:
    """Return the tensor without one axis of extent 1."""
    node = _as_node(x, "squeeze")
    place = _axis(node, axis, "squeeze")
    if node.shape[place] != 1:
        fail("squeeze", "an axis of extent 1", f"{node.type}, axis {axis}")
    return index(node, (slice(None),) * place + (0,))


def broadcast_to(x: TensorLike, shape: Sequence[int]) -> Node:
    """Return the tensor repeated along axes of extent 1 to `shape`."""
    node = _as_node(x, "broadcast_to")
    sizes = tuple(int(size) for size in shape)
    return node if sizes == node.shape else apply("broadcast_to", node, shape=sizes)


def pad(x: TensorLike, before: int, after: int, axis: int = 0) -> Node:
    """Return `x` with zeros before and after it along an instance axis."""
    node = _as_node(x, "pad")
    return apply("pad", node, axis=_axis(node, axis, "pad"), before=int(before), after=int(after))


def concat(xs: Sequence[TensorLike], axis: int = 0) -> Node:
    """Return tensors joined along an existing axis."""
    nodes = [_as_node(x, "concat") for x in xs]
    if not nodes:
        fail("concat", "at least one tensor", "none")
    return nodes[0] if len(nodes) == 1 else apply("concat", *nodes, axis=_axis(nodes[0], axis, "concat"))


def stack(xs: Sequence[TensorLike], axis: int = 0) -> Node:
    """Return tensors of one type joined along a new axis."""
    nodes = [_as_node(x, "stack") for x in xs]
    if not nodes:
        fail("stack", "at least one tensor", "none")
    return apply("stack", *nodes, axis=_axis(nodes[0], axis, "stack", extra=1))


def split(x: TensorLike, parts: int, axis: int = 0) -> tuple[Node, ...]:
    """Return equal slices along an axis."""
    node = _as_node(x, "split")
    place = _axis(node, axis, "split")
    if parts < 1 or node.shape[place] % parts:
        fail("split", f"a divisor of {node.shape[place]}", str(parts))
    size = node.shape[place] // parts
    before = (slice(None),) * place
    return tuple(index(node, (*before, slice(i * size, (i + 1) * size))) for i in range(parts))
