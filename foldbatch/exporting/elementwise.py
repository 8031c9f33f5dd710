"""Elementwise ops in ONNX, and the table that all ops are entered into."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import onnx

from foldbatch.exporting.writer import Scope
from foldbatch.static.graph import Node

Translation: TypeAlias = Callable[..., str]
TRANSLATIONS: dict[str, Translation] = {}


def translation(function: Translation) -> Translation:
    """Enter a paragraph into the table; its name is that of the op, after an underscore."""
    TRANSLATIONS[function.__name__.removeprefix("_")] = function
    return function


def _same(name: str) -> Translation:
    return lambda at, node, *xs: at.add(name, *xs)


def onnx_type(dtype: str) -> int:
    """Return ONNX's number of a dtype."""
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


SAME = {
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "negative": "Neg",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "abs": "Abs",
    "sign": "Sign",
    "floor": "Floor",
    "round": "Round",
    "tanh": "Tanh",
    "sin": "Sin",
    "cos": "Cos",
    "sigmoid": "Sigmoid",
    "relu": "Relu",
    "maximum": "Max",
    "minimum": "Min",
    "equal": "Equal",
}
TRANSLATIONS |= {ours: _same(theirs) for ours, theirs in SAME.items()}


@translation
def _add(at: Scope, node: Node, *xs: str) -> str:
    total = xs[0] if len(xs) > 1 else at.add("Identity", xs[0])
    for x in xs[1:]:
        total = at.add("Add", total, x)
    return total


@translation
def _square(at: Scope, node: Node, x: str) -> str:
    return at.add("Mul", x, x)


@translation
def _softplus(at: Scope, node: Node, x: str) -> str:
    below = at.add("Exp", at.add("Neg", at.add("Abs", x)))  # which does not overflow
    return at.add("Add", at.add("Relu", x), at.add("Log", at.add("Add", at.constant(1, node.dtype), below)))


@translation
def _log_sigmoid(at: Scope, node: Node, x: str) -> str:
    return at.add("Neg", _softplus(at, node, at.add("Neg", x)))


def _floored(at: Scope, node: Node, x: str, y: str) -> tuple[str, str]:
    """Return what truncated division leaves, and whether floored division leaves `y` more."""
    zero, rest = at.constant(0, node.dtype), at.add("Mod", x, y, fmod=1)
    apart = at.add("Xor", at.add("Less", rest, zero), at.add("Less", y, zero))
    return rest, at.add("And", at.add("Not", at.add("Equal", rest, zero)), apart)


def _zero_like(at: Scope, node: Node, sign: str) -> str:
    """Return zeros with the signs of numbers that are not 0."""
    zero, below = at.constant(0, node.dtype), at.constant(-0.0, node.dtype)
    return at.add("Where", at.add("Less", sign, zero), below, zero)


@translation
def _mod(at: Scope, node: Node, x: str, y: str) -> str:
    rest, more = _floored(at, node, x, y)
    whole = at.add("Equal", rest, at.constant(0, node.dtype))
    floored = at.add("Where", more, at.add("Add", rest, y), rest)
    return at.add("Where", whole, _zero_like(at, node, y), floored)


@translation
def _floor_divide(at: Scope, node: Node, x: str, y: str) -> str:
    zero, one = at.constant(0, node.dtype), at.constant(1, node.dtype)
    rest, more = _floored(at, node, x, y)
    near = at.add("Div", at.add("Sub", x, rest), y)
    near = at.add("Where", more, at.add("Sub", near, one), near)
    whole = at.add("Floor", near)
    above = at.add("Greater", at.add("Sub", near, whole), at.constant(0.5, node.dtype))
    whole = at.add("Where", above, at.add("Add", whole, one), whole)
    quotient = at.add("Div", x, y)
    small = at.add("Mul", quotient, zero)  # the zero that the exact quotient is rounded down to
    whole = at.add("Where", at.add("Equal", near, zero), small, whole)
    return at.add("Where", at.add("Equal", y, zero), quotient, whole)


@translation
def _power(at: Scope, node: Node, x: str) -> str:
    return at.add("Pow", x, at.constant(node.attrs["exponent"], node.dtype))


@translation
def _where(at: Scope, node: Node, condition: str, a: str, b: str) -> str:
    if node.dtype != "bool":
        return at.add("Where", condition, a, b)
    otherwise = at.add("And", at.add("Not", condition), b)
    return at.add("Or", at.add("And", condition, a), otherwise)


def _compared(name: str) -> Translation:
    def compared(at: Scope, node: Node, a: str, b: str) -> str:
        if node.inputs[0].dtype == "bool":  # which these do not take
            a, b = (at.add("Cast", x, to=onnx_type("int32")) for x in (a, b))
        return at.add(name, a, b)

    return compared


TRANSLATIONS |= {"less": _compared("Less"), "less_equal": _compared("LessOrEqual")}


@translation
def _cast(at: Scope, node: Node, x: str) -> str:
    given, to = node.inputs[0].dtype, onnx_type(node.dtype)
    if not given.startswith("float") or not node.dtype.startswith("int"):
        return at.add("Cast", x, to=to)
    limits = np.iinfo(node.dtype)  # beyond these a runtime may do as it likes
    high = np.nextafter(np.array(-float(limits.min), given), np.array(0, given))
    number = at.add("Where", at.add("IsNaN", x), at.constant(0, given), x)
    inside = at.add("Clip", number, at.constant(limits.min, given), at.constant(high))
    above = at.add("GreaterOrEqual", number, at.constant(-float(limits.min), given))
    return at.add("Where", above, at.constant(limits.max, node.dtype), at.add("Cast", inside, to=to))
