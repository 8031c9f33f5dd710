"""Products of what a call has with the elements of its sequence: attention's scores, and its mixture.

A call's row and an element share all axes; products are summed over the last one, or over the elements. All
three are bilinear, and each is the others' derivative. They are what passes make of ``repeat``, ``multiply``
and a sum (`passes.attention`), so that neither rows repeated nor products are ever written to memory.
"""

from __future__ import annotations

from typing import Any

from foldbatch.static.graph import apply
from foldbatch.static.op import CALL, Attrs, Axis, Sample, define, fail, ragged
from foldbatch.static.ops.linalg import bilinear_jvp
from foldbatch.types import TensorType

_V, _M, _ONE, _TWO = TensorType((3,)), TensorType((2, 3)), TensorType(()), TensorType((2,))
_ELEMENTS = ragged()


def _along(name: str, axes: tuple[Axis, ...], call: int, result: Axis | None = None) -> Axis:
    """Return the axis of a result, where one operand has a row per call, the other one a row per element."""
    if axes[call] is not CALL or axes[1 - call].rank < 2:
        fail(name, "rows of calls, and elements of their sequences", f"{axes[0]} and {axes[1]}")
    return result or axes[1 - call]


def _infer_dot(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    q, x = types
    if q != x or not q.shape or not q.is_float:
        fail("segment_dot", "vectors of floats of one type", f"{q} and {x}")
    return TensorType(x.shape[:-1], x.dtype)


def _infer_scaled(name: str, types: tuple[TensorType, ...]) -> TensorType:
    a, x = types
    if a.dtype != x.dtype or not a.is_float or a.shape != x.shape[:-1] or not x.shape:
        fail(name, "floats for vectors of floats", f"{a} and {x}")
    return x


def _scaled(attrs: Attrs, a: Any, x: Any) -> Any:
    return a[..., None] * x


define(
    "segment_dot",  # q: [N, *, k], x: [M, *, k] -> [M, *]: the product of each element with its call's row
    _infer_dot,
    lambda attrs, q, x: (q * x).sum(-1),
    lambda g, y, q, x: (apply("segment_mix", g, x), apply("segment_spread", g, q)),
    bilinear_jvp("segment_dot"),
    (Sample((_V, _V), {}, (CALL, _ELEMENTS)), Sample((_M, _M), {}, (CALL, _ELEMENTS))),
    axis=lambda axes, attrs: _along("segment_dot", axes, 0),
)
define(
    "segment_mix",  # a: [M, *], x: [M, *, k] -> [N, *, k]: the sum of the elements, each times its number
    lambda types, attrs: _infer_scaled("segment_mix", types),
    _scaled,
    lambda g, y, a, x: (apply("segment_dot", g, x), apply("segment_spread", a, g)),
    bilinear_jvp("segment_mix"),
    (Sample((_ONE, _V), {}, (_ELEMENTS,) * 2), Sample((_TWO, _M), {}, (_ELEMENTS,) * 2)),
    axis=lambda axes, attrs: _along("segment_mix", (axes[0], CALL), 1, CALL),
)
define(
    "segment_spread",  # a: [M, *], g: [N, *, k] -> [M, *, k]: its call's row for each element, times a number
    lambda types, attrs: _infer_scaled("segment_spread", types),
    _scaled,
    lambda d, y, a, g: (apply("segment_dot", g, d), apply("segment_mix", a, d)),
    bilinear_jvp("segment_spread"),
    (Sample((_ONE, _V), {}, (_ELEMENTS, CALL)), Sample((_TWO, _M), {}, (_ELEMENTS, CALL))),
    axis=lambda axes, attrs: _along("segment_spread", axes, 1),
)
