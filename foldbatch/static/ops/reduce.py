"""Reductions over instance axes or over each call's sequence, softmax and its losses (stable forms), one-hot.

An op on a sequence as a whole cannot be made of what each element yields alone, so `evaluate` is given all
elements of one sequence at once. The maximum of an empty sequence is 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from foldbatch.params.parameters import Array
from foldbatch.static.graph import Node, apply, constant
from foldbatch.static.op import CALL, Attrs, Sample, define, fail, ragged
from foldbatch.static.ops.shape import along
from foldbatch.types import TensorType

_V, _M = TensorType((3,)), TensorType((2, 3))
_LABEL = TensorType((), "int32")
GREATEST, TOTAL = "top = greatest(x[k])\ny = top", "total = sum(x[k])\ny = t(total)"
SOFTMAX = """\
top = greatest(x[k])
y[k] = exp(x[k] - top)
total = sum(y[k])
y[k] = y[k] / t(total)"""
_SHARE = "exp(0 if x[k] == top else x[k] - top)"
_TOP_AND_LOG_SUM = f"""\
at, top = greatest(x[k])
rest = sum(0 if k == at else {_SHARE})
rest = log1p(rest)
"""  # as `top_and_rest`
LOGSUMEXP = _TOP_AND_LOG_SUM + "y = t(f8(top) + rest)"
LOG_SOFTMAX = f"""\
at, top = greatest(x[k])
y[k] = {_SHARE}
rest = sum(0 if k == at else y[k])
rest = log1p(rest)
y[k] = t(f8(x[k]) - f8(top) - rest)"""  # the same: exponentials that are stored are vectors


def kept(x: Node, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of `x` with `axes` shrunk to 1: a reduced tensor's shape for broadcasting."""
    return tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))


def expand(reduced: Node, x: Node, axes: tuple[int, ...]) -> Node:
    """Give a tensor reduced from `x` over `axes` those axes back, with extent 1."""
    return apply("reshape", reduced, shape=kept(x, axes))


def _reduced(name: str, x: TensorType, axes: tuple[int, ...]) -> TensorType:
    if any(not 0 <= axis < len(x.shape) for axis in axes):
        fail(name, f"axes of {x}", str(axes))
    return TensorType(tuple(extent for axis, extent in enumerate(x.shape) if axis not in axes), x.dtype)


def _numbers_of(name: str, types: tuple[TensorType, ...]) -> TensorType:
    if types[0].dtype == "bool":
        fail(name, "numbers", str(types[0]), "cast with ops.cast")
    return types[0]


def _picked(name: str, x: TensorType, axis: int) -> TensorType:
    """Return the type of a reduction for which no elements are too few."""
    reduced = _reduced(name, x, (axis,))
    if x.shape[axis] == 0:
        fail(name, "at least one element", str(x))
    return reduced


define(
    "sum",
    lambda types, attrs: _reduced("sum", _numbers_of("sum", types), attrs["axes"]),
    lambda attrs, x: np.sum(x, attrs["axes"], np.asarray(x).dtype),  # NumPy would widen integers
    lambda g, y, x: (apply("broadcast_to", expand(g, x, y.attrs["axes"]), shape=x.shape),),
    (Sample((_M,), {"axes": (1,)}), Sample((_M,), {"axes": (0, 1)})),
    body=TOTAL,
)


def _argmax_mask(y: Node, x: Node) -> Node:
    """1 at the (first) maximum along the axis, else 0."""
    axis = y.attrs["axis"]
    mask = apply("one_hot", apply("argmax", x, axis=axis), size=x.shape[axis], dtype=x.dtype)
    order = list(range(x.ndim - 1))
    order.insert(axis, x.ndim - 1)  # one_hot puts its axis last
    return apply("transpose", mask, axes=tuple(order))


define(
    "max",
    lambda types, attrs: _picked("max", types[0], attrs["axis"]),
    lambda attrs, x: np.max(x, attrs["axis"]),
    lambda g, y, x: (_argmax_mask(y, x) * expand(g, x, (y.attrs["axis"],)),),
    (Sample((_V,), {"axis": 0}), Sample((_M,), {"axis": 0})),
    body=GREATEST,
)


def _infer_argmax(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    if types[0].shape[attrs["axis"]] >= 2**31:  # kernels count places in 32 bits
        fail("argmax", "fewer than 2**31 elements along its axis", str(types[0]), "take parts of it")
    return TensorType(_picked("argmax", types[0], attrs["axis"]).shape, "int64")


define(
    "argmax",
    _infer_argmax,
    lambda attrs, x: np.argmax(x, attrs["axis"]),
    samples=(Sample((_M,), {"axis": 1}),),
    body="at, top = first(x[k])\ny = at",
)


def _infer_one_hot(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    if not types[0].dtype.startswith("int"):
        fail("one_hot", "an integer tensor", str(types[0]), "declare Scalar('int32')")
    return TensorType((*types[0].shape, attrs["size"]), attrs["dtype"])


define(
    "one_hot",
    _infer_one_hot,
    lambda attrs, x: np.eye(attrs["size"], dtype=attrs["dtype"])[x],
    samples=(Sample((_LABEL,), {"size": 4, "dtype": "float64"}),),
    bound=lambda types, attrs: (0, attrs["size"]),
    body="y[k] = 0\ny[label] = 1",
)


TypeRule = Callable[[tuple[TensorType, ...], Attrs], TensorType]


def _infer_float_axis(name: str, *, reduce: bool) -> TypeRule:
    """Return a type rule for floats along an axis, which is lost if `reduce` is set."""

    def infer(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
        x = types[0]
        if not x.is_float or not x.shape:
            fail(name, "a float tensor of at least one axis", str(x))
        reduced = _picked(name, x, attrs["axis"])
        return reduced if reduce else x

    return infer


def top_and_rest(x: Array, axis: int) -> tuple[Array, Array]:
    """Return the maximum m along an axis, and logsumexp(x) - m in float64; both keep the axis, of extent 1.

    The rest is log(1 + s) with s the sum of exp(x - m) over all elements but one that is the maximum. So it
    keeps its digits where s is far below 1, as the loss of a sure and right prediction needs.
    """
    at = np.expand_dims(np.argmax(x, axis), axis)
    top = np.take_along_axis(x, at, axis)
    below = x - top
    if np.isinf(top).any():  # infinities of one sign are as large as each other
        np.copyto(below, 0, where=x == top)
    exp = np.exp(below)
    np.put_along_axis(exp, at, 0, axis)
    return top, np.log1p(np.sum(exp, axis, np.float64, keepdims=True))


def _evaluate_logsumexp(attrs: Attrs, x: Array) -> Array:
    top, log_sum = top_and_rest(x, attrs["axis"])
    return np.squeeze(top + log_sum, attrs["axis"])


def _evaluate_log_softmax(attrs: Attrs, x: Array) -> Array:
    top, log_sum = top_and_rest(x, attrs["axis"])
    return (x - top) - log_sum


def _evaluate_softmax(attrs: Attrs, x: Array) -> object:
    exp = np.exp(x - np.max(x, attrs["axis"], keepdims=True))
    return exp / np.sum(exp, attrs["axis"], keepdims=True)


def _dot_along(a: Node, b: Node, axis: int) -> Node:
    return apply("sum", a * b, axes=(axis,))


def _softmax_product(g: Node, y: Node, x: Node) -> Node:
    """Return the softmax's Jacobian, which is symmetric, times `g`."""
    axis = y.attrs["axis"]
    return y * (g - expand(_dot_along(g, y, axis), x, (axis,)))


define(
    "softmax",
    _infer_float_axis("softmax", reduce=False),
    _evaluate_softmax,
    lambda g, y, x: (_softmax_product(g, y, x),),
    (Sample((_V,), {"axis": 0}), Sample((_M,), {"axis": 1})),
    body=SOFTMAX,
)


def _weighted(t: Node, y: Node, x: Node) -> Node:
    return _dot_along(t, apply("softmax", x, axis=y.attrs["axis"]), y.attrs["axis"])


def _less_share(g: Node, y: Node, x: Node) -> Node:
    """Return `g` less its sum times softmax: a cotangent through log_softmax."""
    axis = y.attrs["axis"]
    return g - apply("softmax", x, axis=axis) * expand(apply("sum", g, axes=(axis,)), x, (axis,))


define(
    "log_softmax",
    _infer_float_axis("log_softmax", reduce=False),
    _evaluate_log_softmax,
    lambda g, y, x: (_less_share(g, y, x),),
    (Sample((_V,), {"axis": 0}), Sample((_M,), {"axis": 1})),
    body=LOG_SOFTMAX,
)


define(
    "logsumexp",
    _infer_float_axis("logsumexp", reduce=True),
    _evaluate_logsumexp,
    lambda g, y, x: (apply("softmax", x, axis=y.attrs["axis"]) * expand(g, x, (y.attrs["axis"],)),),
    (Sample((_V,), {"axis": 0}), Sample((_M,), {"axis": 0})),
    body=LOGSUMEXP,
)


def _infer_cross_entropy(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    """Return the type of the losses: one number for each vector of logits."""
    logits, label = types
    fix = "pass (logits, class number), for example Scalar('int32')"
    if not logits.is_float or not logits.shape:
        fail("cross_entropy", "float logits, one per class", str(logits), fix)
    if not label.dtype.startswith("int") or label.shape != logits.shape[:-1]:
        fail("cross_entropy", f"integer labels of shape {list(logits.shape[:-1])}", str(label), fix)
    return TensorType(label.shape, logits.dtype)


def _evaluate_cross_entropy(attrs: Attrs, logits: Array, label: Array) -> object:
    picked = np.take_along_axis(logits, np.expand_dims(label, -1), -1)
    top, log_sum = top_and_rest(logits, -1)
    return np.squeeze((top - picked) + log_sum, -1)


def _error(logits: Node, label: Node) -> Node:
    """Softmax less the one-hot label: the gradient of a cross-entropy."""
    hot = apply("one_hot", label, size=logits.shape[-1], dtype=logits.dtype)
    return apply("softmax", logits, axis=logits.ndim - 1) - hot


define(
    "cross_entropy",  # -log softmax(logits)[label]
    _infer_cross_entropy,
    _evaluate_cross_entropy,
    lambda g, y, logits, label: (_error(logits, label) * expand(g, logits, (logits.ndim - 1,)), None),
    (Sample((_V, _LABEL), {}), Sample((_M, TensorType((2,), "int32")), {})),
    bound=lambda types, attrs: (1, types[0].shape[-1]),
    body=_TOP_AND_LOG_SUM + "y = t(f8(top) - f8(x[label]) + rest)",
)


def ordered(x: Array, count: int, *, descending: bool) -> Array:
    """Return the places of the first elements along the last axis, in order; equal ones stay in theirs.

    NaN is the greatest. Shapes: ``[..., n]`` to ``int64[..., count]``.

    >>> ordered(np.array([2.0, np.nan, 2.0, 3.0]), 4, descending=True).tolist()
    [1, 3, 0, 2]
    """
    if not descending:
        return np.argsort(x, kind="stable")[..., :count]
    backwards = np.argsort(x[..., ::-1], kind="stable")[..., ::-1]
    places: Array = x.shape[-1] - 1 - backwards[..., :count]
    return places


define(
    "order",  # the places of the first elements along the last axis, as `ordered`
    lambda types, attrs: TensorType((*types[0].shape[:-1], attrs["count"]), "int64"),
    lambda attrs, x: ordered(np.asarray(x), **attrs),
    samples=tuple(Sample((_M,), {"count": 2, "descending": descending}) for descending in (False, True)),
)


def _only_at(label: Node, x: Node, t: Node) -> Node:
    """Return `t` at a label's place in a line of `x`, else 0."""
    at = apply("equal", expand(label, x, (x.ndim - 1,)), constant(np.arange(x.shape[-1]), label.dtype))
    return apply("where", at, expand(t, x, (x.ndim - 1,)), constant(0, t.dtype))


define(
    "pick",  # the element of a line ``x[..., n]`` that a label ``[...]`` tells
    lambda types, attrs: TensorType(types[1].shape, types[0].dtype),
    lambda attrs, x, label: np.squeeze(np.take_along_axis(x, np.expand_dims(label, -1), -1), -1),
    lambda g, y, x, label: (_only_at(label, x, g), None),
    (Sample((_V, _LABEL), {}), Sample((_M, TensorType((2,), "int32")), {})),
    bound=lambda types, attrs: (1, types[0].shape[-1]),
    body="y = x[label]",
)


_ELEMENTS = ragged()
_SAMPLES = tuple(Sample((TensorType(shape),), {}, (_ELEMENTS,)) for shape in ((), (3,), (2, 3)))


def _only_first(x: Node, t: Node) -> Node:
    """Return `t` at the element that gives the maximum of `x`, else 0."""
    return apply("where", apply("segment_is_max", x), t, constant(0, t.dtype))


define(
    "segment_max",  # the maximum over the elements of each call's sequence; zero where it is empty
    lambda types, attrs: _numbers_of("segment_max", types),
    lambda attrs, x: np.max(x, 0) if len(x) else np.zeros(x.shape[1:], x.dtype),
    lambda g, y, x: (_only_first(x, g),),
    _SAMPLES,
    axis=along("segment_max", "ops.max", CALL),
    whole=True,
    sequence="bounds",
    body=GREATEST,
)


def _evaluate_is_max(attrs: Attrs, x: Array) -> object:
    if not len(x):
        return np.zeros(x.shape, bool)
    return np.arange(len(x)).reshape(-1, *(1,) * (x.ndim - 1)) == np.argmax(x, 0)


define(
    "segment_is_max",  # whether an element is the (first) maximum of its sequence
    lambda types, attrs: TensorType(_numbers_of("segment_is_max", types).shape, "bool"),
    _evaluate_is_max,
    samples=_SAMPLES,
    axis=along("segment_is_max", "ops.argmax"),
    whole=True,
    sequence="bounds",
    body="at, top = first(x[k])\ny[k] = k == at",
)


define(
    "segment_position",  # how many elements of its sequence stand before an element
    lambda types, attrs: TensorType(types[0].shape, "int64"),
    lambda attrs, x: np.broadcast_to(np.arange(len(x)).reshape(-1, *(1,) * (x.ndim - 1)), x.shape),
    samples=_SAMPLES,
    axis=along("segment_position", "np.arange"),
    whole=True,
    sequence="bounds",
    body="y[k] = k",
)


def _floats_of(name: str) -> TypeRule:
    """Return a type rule that refuses all but floats, and keeps the type."""

    def infer(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
        if not types[0].is_float:
            fail(name, "a float tensor", str(types[0]), "cast with ops.cast(x, 'float32')")
        return types[0]

    return infer


def _evaluate_segment_softmax(attrs: Attrs, x: Array) -> object:
    if not len(x):
        return x
    exp = np.exp(x - np.max(x, 0))
    return exp / np.sum(exp, 0)


def _segment_softmax_product(g: Node, y: Node) -> Node:
    """Return the softmax's Jacobian, which is symmetric, times `g`."""
    return y * (g - apply("segment_sum", g * y))


define(
    "segment_softmax",  # exp(x) normalised to sum to 1 over the elements of each call's sequence
    _floats_of("segment_softmax"),
    _evaluate_segment_softmax,
    lambda g, y, x: (_segment_softmax_product(g, y),),
    _SAMPLES,
    axis=along("segment_softmax", "ops.softmax"),
    whole=True,
    sequence="bounds",
    body=SOFTMAX,
)


define(
    "segment_log_softmax",  # x less log(sum(exp(x))) over the elements of each call's sequence
    _floats_of("segment_log_softmax"),
    lambda attrs, x: _evaluate_log_softmax({"axis": 0}, x) if len(x) else x,
    lambda g, y, x: (g - apply("segment_softmax", x) * apply("segment_sum", g),),
    _SAMPLES,
    axis=along("segment_log_softmax", "ops.log_softmax"),
    whole=True,
    sequence="bounds",
    body=LOG_SOFTMAX,
)
define(
    "segment_logsumexp",  # log(sum(exp(x))) over the elements of each call's sequence; zero where it is empty
    _floats_of("segment_logsumexp"),
    lambda attrs, x: _evaluate_logsumexp({"axis": 0}, x) if len(x) else np.zeros(x.shape[1:], x.dtype),
    lambda g, y, x: (apply("segment_softmax", x) * g,),
    _SAMPLES,
    axis=along("segment_logsumexp", "ops.logsumexp", CALL),
    whole=True,
    sequence="bounds",
    body=LOGSUMEXP,
)
