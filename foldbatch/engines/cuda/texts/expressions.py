"""What an elementwise op makes of one element of each operand, in the language of ``device.h``."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from foldbatch.static.graph import Node
from foldbatch.static.routines import Target

KINDS = {"float32": "f4", "float64": "f8", "int32": "i4", "int64": "i8", "bool": "b1"}  # by dtype
SUFFIX = {"f4": "f", "f8": ""}  # of the functions of math.h

# `t` is the type of the result, `f` the suffix of functions. Comparisons that decide are false for NaN, which
# must come out as it went in.
EXPRESSIONS: dict[str, str] = {
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "divide": "{0} / {1}",
    "negative": "-{0}",
    "square": "{0} * {0}",
    "abs": "fabs{f}({0})",
    "sign": "({0} > 0 ? ({t})1 : {0} < 0 ? ({t})-1 : {0} + ({t})0)",  # not -0.0
    "sqrt": "sqrt{f}({0})",
    "exp": "exp{f}({0})",
    "tanh": "tanh{f}({0})",
    "sigmoid": "sigmoid_{t}({0})",
    "relu": "({0} < 0 ? ({t})0 : {0})",
    "maximum": "(({0} >= {1}) | ({0} != {0}) ? {0} : {1})",
    "minimum": "(({0} <= {1}) | ({0} != {0}) ? {0} : {1})",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "equal": "{0} == {1}",
    "where": "({0} ? {1} : {2})",
    "log": "log{f}({0})",
    "sin": "sin{f}({0})",
    "cos": "cos{f}({0})",
    "floor_divide": "floor_divide_{t}({0}, {1})",
    "mod": "mod_{t}({0}, {1})",
    "floor": "floor{f}({0})",
    "round": "rint{f}({0})",
    "softplus": "({0} > 0 ? {0} : ({t})0) + log1p{f}(exp{f}({0} > 0 ? -{0} : {0}))",
    "log_sigmoid": "-(({0} > 0 ? ({t})0 : -{0}) + log1p{f}(exp{f}({0} > 0 ? -{0} : {0})))",
}

# Whole numbers wrap around, which C says of unsigned ones alone: `u` is their type.
WRAPPING: dict[str, str] = {
    "subtract": "({u}){0} - ({u}){1}",
    "multiply": "({u}){0} * ({u}){1}",
    "negative": "-({u}){0}",
    "square": "({u}){0} * ({u}){0}",
    "abs": "({0} < 0 ? -({u}){0} : ({u}){0})",
}
UNSIGNED = {"i4": "u4", "i8": "u8"}
POWERS = {0.5: "sqrt{f}({0})", 1.0: "{0}", 2.0: "{0} * {0}", -1.0: "({t})1 / {0}"}  # as NumPy spells them

TARGET = Target(
    fused=frozenset({*EXPRESSIONS, "add", "cast", "power"}), dtypes=frozenset(KINDS), rows_apart=True
)


def expression(name: str, dtype: str, operands: Sequence[str], given: str, exponent: float = 0.0) -> str:
    """Return what an op makes of one element of each operand; its result has this dtype.

    Args:
        name: of the op.
        dtype: of the result.
        operands: expressions of the elements; those of bools are 0 or 1.
        given: the dtype of the first operand.
        exponent: of ``power``.

    >>> expression("multiply", "float32", ["a", "b"], "float32")
    'a * b'
    """
    kind = KINDS[dtype]
    unsigned = UNSIGNED.get(kind, "")
    match name:
        case "add" if unsigned:
            return f"({kind})({' + '.join(f'({unsigned}){operand}' for operand in operands)})"
        case "add":
            text = " + ".join(operands)
        case "cast" if unsigned and KINDS[given] in SUFFIX:
            return f"{kind}_of_{KINDS[given]}({operands[0]})"
        case "cast":
            return f"{operands[0]} != 0" if kind == "b1" else f"({kind}){operands[0]}"
        case "power" if exponent in POWERS:
            text = POWERS[exponent].format(*operands, t=kind, f=SUFFIX[kind])
        case "power":
            text = f"pow{SUFFIX[kind]}({operands[0]}, {number(exponent, kind)})"
        case _ if unsigned and name in WRAPPING:
            return f"({kind})({WRAPPING[name].format(*operands, u=unsigned)})"
        case _:
            text = EXPRESSIONS[name].format(*operands, t=kind, f=SUFFIX.get(kind, ""))
    return f"({text}) != 0" if kind == "b1" else text


def literal(constant: Node) -> str:
    """Return a number of a graph as text."""
    return number(constant.attrs["value"].item(), KINDS[constant.dtype])


def number(value: float, kind: str) -> str:
    """Return a number as text, of a kind of `KINDS`.

    >>> number(0.1, "f4"), number(-np.inf, "f8"), number(-(2**63), "i8"), number(True, "b1")
    ('0.1f', '(-F8_INF)', '(-9223372036854775807ll - 1)', '1')
    """
    if kind in SUFFIX:
        if math.isnan(value):
            return f"({kind.upper()}_INF - {kind.upper()}_INF)"
        if math.isinf(value):
            return f"{kind.upper()}_INF" if value > 0 else f"(-{kind.upper()}_INF)"
        text = f"{float(value)!r}{SUFFIX[kind]}"
        return f"({text})" if text.startswith("-") else text  # -0.0 is one that is not less than 0
    if kind == "b1":
        return str(int(value))
    if value == np.iinfo(np.int64).min:
        return "(-9223372036854775807ll - 1)"
    return f"({int(value)}ll)" if kind == "i8" else f"({int(value)})"
