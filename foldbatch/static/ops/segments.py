"""Ops on each call's sequence as a whole: its maximum, where that stands, softmax over its elements.

Unlike a sum, none of them can be made of what each element yields alone, so `evaluate` is given
all elements of one sequence at once. The maximum of an empty sequence is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from foldbatch.static.graph import Node, apply, constant
from foldbatch.static.op import CALL, Attrs, Axis, Op, Sample, Tangents, define, fail, ragged
from foldbatch.static.ops.reduce import GREATEST, SOFTMAX
from foldbatch.types import TensorType

_ELEMENTS = ragged()
_SAMPLES = tuple(Sample((TensorType(shape),), {}, (_ELEMENTS,)) for shape in ((), (3,), (2, 3)))


def _along(name: str, fix: str, result: Axis | None = None) -> Callable[[tuple[Axis, ...], Attrs], Axis]:
    """Return the axis rule of an op on a sequence's elements: to `result`, by default to themselves."""

    def axis(axes: tuple[Axis, ...], attrs: Attrs) -> Axis:
        if axes[0].rank < 2:
            fail(name, "a tensor of a sequence's elements", f"a tensor of axis {axes[0]}", fix)
        return result or axes[0]

    return axis


def _numbers(name: str, types: tuple[TensorType, ...]) -> TensorType:
    if types[0].dtype == "bool":
        fail(name, "numbers", str(types[0]), "cast with ops.cast")
    return types[0]


def _evaluate_max(attrs: Attrs, x: Any) -> Any:
    return np.max(x, 0) if len(x) else np.zeros(x.shape[1:], x.dtype)


def _only_first(x: Node, t: Node) -> Node:
    """Return `t` at the element that gives the maximum of `x`, else 0."""
    return apply("where", apply("segment_is_max", x), t, constant(0, t.dtype))


def _jvp_max(tangents: Tangents, y: Node, x: Node) -> Node:
    assert tangents[0] is not None
    return apply("segment_sum", _only_first(x, tangents[0]))


define(
    Op(
        "segment_max",  # the maximum over the elements of each call's sequence; zero where it is empty
        lambda types, attrs: _numbers("segment_max", types),
        _evaluate_max,
        lambda g, y, x: (_only_first(x, g),),
        _jvp_max,
        _SAMPLES,
        axis=_along("segment_max", "use ops.max for instance axes", CALL),
        whole=True,
        body=GREATEST,
    )
)


def _evaluate_is_max(attrs: Attrs, x: Any) -> Any:
    if not len(x):
        return np.zeros(x.shape, bool)
    return np.arange(len(x)).reshape(-1, *(1,) * (x.ndim - 1)) == np.argmax(x, 0)


define(
    Op(
        "segment_is_max",  # whether an element is the (first) maximum of its sequence
        lambda types, attrs: TensorType(_numbers("segment_is_max", types).shape, "bool"),
        _evaluate_is_max,
        None,
        None,
        _SAMPLES,
        axis=_along("segment_is_max", "use ops.argmax for instance axes"),
        whole=True,
        body="at, top = first(x[k])\ny[k] = k == at",
    )
)


define(
    Op(
        "segment_position",  # how many elements of its sequence stand before an element
        lambda types, attrs: TensorType(types[0].shape, "int64"),
        lambda attrs, x: np.broadcast_to(np.arange(len(x)).reshape(-1, *(1,) * (x.ndim - 1)), x.shape),
        None,
        None,
        _SAMPLES,
        axis=_along("segment_position", "use np.arange for instance axes"),
        whole=True,
        body="y[k] = k",
    )
)


def _infer_softmax(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    if not types[0].is_float:
        fail("segment_softmax", "a float tensor", str(types[0]), "cast with ops.cast(x, 'float32')")
    return types[0]


def _evaluate_softmax(attrs: Attrs, x: Any) -> Any:
    if not len(x):
        return x
    exp = np.exp(x - np.max(x, 0))
    return exp / np.sum(exp, 0)


def _softmax_product(g: Node, y: Node) -> Node:
    """Return the softmax's Jacobian, which is symmetric, times `g`."""
    return y * (g - apply("segment_sum", g * y))


def _jvp_softmax(tangents: Tangents, y: Node, x: Node) -> Node:
    assert tangents[0] is not None
    return _softmax_product(tangents[0], y)


define(
    Op(
        "segment_softmax",  # exp(x) normalised to sum to 1 over the elements of each call's sequence
        _infer_softmax,
        _evaluate_softmax,
        lambda g, y, x: (_softmax_product(g, y),),
        _jvp_softmax,
        _SAMPLES,
        axis=_along("segment_softmax", "use ops.softmax for instance axes"),
        whole=True,
        body=SOFTMAX,
    )
)
