"""Elementwise ops.

A rule ``vjp(g, y, *xs)`` yields one cotangent per operand in the *result's* shape; `autodiff`
sums it down to the operand's shape, so that no rule repeats that.

`when_training` only marks a place. Before a cell is compiled, `foldbatch.static.passes.simplify.in_phase`
puts the one operand or the other there, so kernels of inference compute nothing for training only.
Wherever it is left in a graph it means training, which is also what is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from foldbatch.params.parameters import Array
from foldbatch.static.graph import Node, apply, constant
from foldbatch.static.op import Attrs, Sample, define, fail
from foldbatch.types import TensorType


def _broadcast(name: str, types: tuple[TensorType, ...]) -> tuple[int, ...]:
    """Return the shape that operands broadcast to, refusing shapes that do not."""
    if len(shapes := {t.shape for t in types}) == 1:
        return types[0].shape
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        fail(name, "shapes that broadcast", " and ".join(map(str, types)), "reshape or slice one of them")


def _same_dtype(name: str, types: tuple[TensorType, ...]) -> str:
    if len({t.dtype for t in types}) > 1:
        fail(name, "operands of one dtype", " and ".join(map(str, types)), "cast one with ops.cast")
    return types[0].dtype


def _arithmetic(name: str, types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    dtype = _same_dtype(name, types)
    if dtype == "bool":
        fail(name, "numbers", " and ".join(map(str, types)), "cast with ops.cast, or use ops.where")
    return TensorType(_broadcast(name, types), dtype)


def _floating(name: str, types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    if not types[0].is_float:
        fail(name, "a float tensor", str(types[0]), "cast with ops.cast(x, 'float32')")
    return TensorType(_broadcast(name, types), _same_dtype(name, types))


def _comparison(name: str, types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    _same_dtype(name, types)
    return TensorType(_broadcast(name, types), "bool")


def _zero(g: Node) -> Node:
    return constant(0, g.dtype)


_V = TensorType((3,))
_M = TensorType((2, 3))
_S = TensorType(())


def _define(
    name: str,
    arity: int,
    infer: Callable[[str, tuple[TensorType, ...], Attrs], TensorType],
    evaluate: Callable[..., object],
    body: str,
    vjp: Callable[..., tuple[Node | None, ...]] | None = None,
    samples: tuple[Sample, ...] | None = None,
    *,
    positive: bool = False,
) -> None:
    """Define an elementwise op, with samples of its operands."""
    if samples is None:
        samples = (Sample((_V,) * arity, {}, positive=positive),)
        if arity > 1:
            samples += (Sample((_M, _V), {}, positive=positive), Sample((_S, _M), {}, positive=positive))

    def evaluated(attrs: Attrs, *xs: object) -> object:
        return evaluate(*xs, **attrs)

    define(name, partial(infer, name), evaluated, vjp, samples, elementwise=True, body=body)


def _sum(*xs: Array) -> Array:
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


_define("add", 2, _arithmetic, _sum, "a + b", lambda g, y, *xs: (g,) * len(xs))
_define("subtract", 2, _arithmetic, np.subtract, "a - b", lambda g, y, a, b: (g, -g))
_define("multiply", 2, _arithmetic, np.multiply, "a * b", lambda g, y, a, b: (g * b, g * a))
_define("divide", 2, _floating, np.divide, "a / b", lambda g, y, a, b: (g / b, -(g * y / b)), positive=True)
# of the exact remainder: no rounding brings a quotient to the next whole number
_define(
    "floor_divide",
    2,
    _floating,
    np.floor_divide,
    """\
rest = fmod(a, b)
near = (a - rest) / b
near = near - 1 if (rest != 0) & ((rest < 0) != (b < 0)) else near
whole = floor(near)
whole = whole + 1 if near - whole > 0.5 else whole
quotient = a / b
whole = whole if near != 0 else copysign(near, quotient)
quotient if b == 0 else whole
""",
    positive=True,
)
_define(
    "mod",
    2,
    _floating,
    np.mod,
    """\
rest = fmod(a, b)
copysign(rest + b if (rest != 0) & ((rest < 0) != (b < 0)) else rest, b)
""",
    lambda g, y, a, b: (g, -(g * apply("floor_divide", a, b))),
    positive=True,
)
_define("negative", 1, _arithmetic, np.negative, "-a", lambda g, y, x: (-g,))
_define("square", 1, _arithmetic, np.square, "a * a", lambda g, y, x: (2 * (g * x),))  # 2 * x may overflow
_define("exp", 1, _floating, np.exp, "exp(a)", lambda g, y, x: (g * y,))
_define("log", 1, _floating, np.log, "log(a)", lambda g, y, x: (g / x,), positive=True)
_define("sqrt", 1, _floating, np.sqrt, "sqrt(a)", lambda g, y, x: (g * 0.5 / y,), positive=True)
_define("abs", 1, _arithmetic, np.abs, "abs(a)", lambda g, y, x: (g * apply("sign", x),))
_define("sign", 1, _arithmetic, np.sign, "1 if a > 0 else -1 if a < 0 else a + 0")  # not -0.0
_define("floor", 1, _floating, np.floor, "floor(a)")
_define("round", 1, _floating, np.rint, "rint(a)")
_define("stop_gradient", 1, _arithmetic, np.positive, "a")
_define("tanh", 1, _floating, np.tanh, "tanh(a)", lambda g, y, x: (g * (1 - apply("square", y)),))
_define("sin", 1, _floating, np.sin, "sin(a)", lambda g, y, x: (g * apply("cos", x),))
_define("cos", 1, _floating, np.cos, "cos(a)", lambda g, y, x: (-(g * apply("sin", x)),))


def _sigmoid(x: Array) -> object:
    e = np.exp(-np.abs(x))  # which neither overflows nor loses digits
    return np.where(np.less(x, 0), e, 1) / (1 + e)


_define("sigmoid", 1, _floating, _sigmoid, "sigmoid(a)", lambda g, y, x: (g * y * (1 - y),))
# the comparisons that decide are false for NaN, which must come out as it went in
_define(
    "relu",
    1,
    _floating,
    lambda x: np.maximum(x, 0),
    "0 if a < 0 else a",
    lambda g, y, x: (apply("where", x > 0, g, _zero(g)),),
)
_define(
    "softplus",
    1,
    _floating,
    lambda x: np.logaddexp(x, 0),
    "(a if a > 0 else 0) + log1p(exp(-abs(a)))",
    lambda g, y, x: (g * apply("sigmoid", x),),
)


def _vjp_power(g: Node, y: Node, x: Node) -> tuple[Node | None, ...]:
    exponent = y.attrs["exponent"]
    return (g * (exponent * x ** (exponent - 1)) if exponent else g * 0,)  # lest 0 * 0 ** -1 be nan


_define(
    "power",
    1,
    _floating,
    lambda x, exponent: x**exponent,
    "pow(a, exponent)",
    _vjp_power,
    (Sample((_V,), {"exponent": 1.5}, positive=True),),
)
# where both are equal the first operand takes the whole cotangent
_define(
    "maximum",
    2,
    _arithmetic,
    np.maximum,
    "a if (a >= b) | (a != a) else b",
    lambda g, y, a, b: (apply("where", b <= a, g, _zero(g)), apply("where", b <= a, _zero(g), g)),
)
_define(
    "minimum",
    2,
    _arithmetic,
    np.minimum,
    "a if (a <= b) | (a != a) else b",
    lambda g, y, a, b: (apply("where", a <= b, g, _zero(g)), apply("where", a <= b, _zero(g), g)),
)
_define("less", 2, _comparison, np.less, "a < b")
_define("less_equal", 2, _comparison, np.less_equal, "a <= b")
_define("equal", 2, _comparison, np.equal, "a == b")


def _infer_where(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    if types[0].dtype != "bool":
        fail("where", "a bool condition", str(types[0]), "compare first, for example x > 0")
    return TensorType(_broadcast("where", types), _same_dtype("where", types[1:]))


def _vjp_where(g: Node, y: Node, condition: Node, a: Node, b: Node) -> tuple[Node | None, ...]:
    return None, apply("where", condition, g, _zero(g)), apply("where", condition, _zero(g), g)


_B = TensorType((3,), "bool")
define(
    "where",
    _infer_where,
    lambda attrs, c, a, b: np.where(c, a, b),
    _vjp_where,
    (Sample((_B, _V, _V), {}), Sample((_B, _M, _S), {})),
    elementwise=True,
    body="b if a else c",
)


def cast_into(out: Array, x: Array) -> None:
    """Write numbers in another dtype. A float beyond an integer's limits becomes the nearer one, and NaN 0.

    The processor decides what NumPy and C make of these.
    """
    np.copyto(out, x, casting="unsafe")
    if x.dtype.kind == "f" and out.dtype.kind == "i":
        limits = np.iinfo(out.dtype)
        np.copyto(out, limits.max, where=x >= -float(limits.min))
        np.copyto(out, limits.min, where=x < limits.min)
        np.copyto(out, 0, where=np.isnan(x))


def _evaluate_cast(attrs: Attrs, x: Array) -> Array:
    out = np.empty(np.shape(x), attrs["dtype"])
    cast_into(out, np.asarray(x))
    return out


define(
    "cast",
    lambda types, attrs: TensorType(types[0].shape, attrs["dtype"]),
    _evaluate_cast,
    lambda g, y, x: (apply("cast", g, dtype=x.dtype) if x.type.is_float and y.type.is_float else None,),
    (Sample((_V,), {"dtype": "float64"}), Sample((TensorType((3,), "int32"),), {"dtype": "float32"})),
    elementwise=True,
    body="t(a)",
    keeps_values=True,
)


def _infer_when_training(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    a, b = types
    if a != b:
        fail("when_training", "two tensors of one type", f"{a} and {b}", "cast or reshape one of them")
    return a


define(
    "when_training",  # a while training, b in inference
    _infer_when_training,
    lambda attrs, a, b: a,
    lambda g, y, a, b: (g, None),
    (Sample((_V, _V), {}), Sample((TensorType((2, 3), "float64"),) * 2, {})),
    copies=lambda attrs, write, a, b: iter([(write, a)]),
)
