"""Products of what a call has with the elements of its sequence: attention's scores, and its mixture.

A call's row and an element share all axes; products are summed over the last one, or over the elements. All
three are bilinear, and each is the others' derivative. They are what passes make of ``repeat``, ``multiply``
and a sum (`passes.attention`), so that neither rows repeated nor products are ever written to memory.
"""

from __future__ import annotations

from foldbatch.params.parameters import Array
from foldbatch.static.graph import Node, apply
from foldbatch.static.op import CALL, Attrs, Axis, Sample, define, fail, ragged
from foldbatch.types import TensorType

_V, _M, _SCALAR, _TWO = TensorType((3,)), TensorType((2, 3)), TensorType(()), TensorType((2,))
_ELEMENTS = ragged()
OF_LISTS = ("segment_dot", "segment_mix", "segment_spread")


def _along(name: str, axes: tuple[Axis, ...], calls: Axis = CALL) -> Axis:
    """Return the axis of the elements; every second operand has a row per element, others one per call."""
    if axes[0].rank < 2 or {*axes[::2]} != {axes[0]} or {*axes[1::2]} != {calls}:
        actual = " and ".join(map(str, axes))
        fail(name, "elements of one sequence, and rows of calls", actual)
    return axes[0]


def _infer_dot(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    x, q = types
    if q != x or not q.shape or not q.is_float:
        fail("segment_dot", "vectors of floats of one type", f"{x} and {q}")
    return TensorType(x.shape[:-1], x.dtype)


def _infer_scaled(name: str, types: tuple[TensorType, ...]) -> TensorType:
    for a, x in zip(types[::2], types[1::2], strict=True):
        if a.dtype != x.dtype or not a.is_float or a.shape != x.shape[:-1] or not x.shape or x != types[1]:
            fail(name, "floats for vectors of floats", " and ".join(map(str, types)))
    return types[1]


def _scaled(attrs: Attrs, *operands: Array) -> Array | int:
    return sum(a[..., None] * x for a, x in zip(operands[::2], operands[1::2], strict=True))


def _spread_vjp(d: Node, y: Node, *operands: Node) -> tuple[Node, ...]:
    pairs = zip(operands[::2], operands[1::2], strict=True)
    return tuple(g for a, x in pairs for g in (apply("segment_dot", d, x), apply("segment_mix", a, d)))


define(
    "segment_dot",  # x: [M, *, k], q: [N, *, k] -> [M, *]: the product of each element with its call's row
    _infer_dot,
    lambda attrs, x, q: (x * q).sum(-1),
    lambda g, y, x, q: (apply("segment_spread", g, q), apply("segment_mix", g, x)),
    (Sample((_V, _V), {}, (_ELEMENTS, CALL)), Sample((_M, _M), {}, (_ELEMENTS, CALL))),
    axis=lambda axes, attrs: _along("segment_dot", axes),
    sequence="owner",
)
define(
    "segment_mix",  # a: [M, *], x: [M, *, k] -> [N, *, k]: the sum of the elements, each times its number
    lambda types, attrs: _infer_scaled("segment_mix", types),
    _scaled,
    lambda g, y, a, x: (apply("segment_dot", x, g), apply("segment_spread", a, g)),
    (Sample((_SCALAR, _V), {}, (_ELEMENTS,) * 2), Sample((_TWO, _M), {}, (_ELEMENTS,) * 2)),
    axis=lambda axes, attrs: (_along("segment_mix", axes, axes[0]), CALL)[1],
    sequence="bounds",
)
define(
    # a: [M, *], g: [N, *, k], more such pairs -> [M, *, k]: its call's row for each element, times a number
    "segment_spread",
    lambda types, attrs: _infer_scaled("segment_spread", types),
    _scaled,
    _spread_vjp,
    (Sample((_SCALAR, _V), {}, (_ELEMENTS, CALL)), Sample((_TWO, _M) * 2, {}, (_ELEMENTS, CALL) * 2)),
    axis=lambda axes, attrs: _along("segment_spread", axes),
    sequence="owner",
)
