"""Bodies of ops in the language of ``device.h``: see `foldbatch.static.bodies` for what they mean."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from foldbatch.static.bodies import applied
from foldbatch.static.graph import Node
from foldbatch.static.op import Op
from foldbatch.static.routines import Target

KINDS = {"float32": "f4", "float64": "f8", "int32": "i4", "int64": "i8", "bool": "b1"}  # by dtype
SUFFIX = {"f4": "f", "f8": ""}  # of the functions of math.h
UNSIGNED = {"i4": "u4", "i8": "u8"}  # whole numbers wrap around, which C says of unsigned ones alone
POWERS = {0.5: "sqrt{f}({x})", 1.0: "{x}", 2.0: "{x} * {x}", -1.0: "({k})1 / {x}"}  # as NumPy spells them
_NAMES = "abs copysign cos exp floor fmod log log1p pow rint sigmoid sin sqrt tanh"
FUNCTIONS = frozenset(_NAMES.split(" "))  # of floats of one kind; abs also of whole numbers
SYMBOLS: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.BitOr: "|",
    ast.BitAnd: "&",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}

TARGET = Target(FUNCTIONS, dtypes=frozenset(KINDS), rows_apart=True)


class Term(NamedTuple):
    """An expression of C and the kind of its value; of a plain number the kind is empty."""

    text: str
    kind: str
    number: float = 0


def term(node: ast.expr, names: Mapping[str, Term]) -> Term:
    """Return an expression of a body.

    Args:
        node: the expression.
        names: what its names and elements are. A conversion to the kind of a name is a call of that name.

    >>> x = Term("x", "i4")
    >>> term(ast.parse("a if a < 0 else a + 1", mode="eval").body, {"a": x}).text
    '((x < (0)) ? x : ((i4)((u4)x + (u4)(1))))'
    """
    match node:
        case ast.Constant(value=int() | float() as value):
            return Term("", "", value)
        case ast.Name() | ast.Subscript():
            return names[ast.unparse(node)]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            x = term(inner, names)
            if not x.kind:
                return x._replace(number=-x.number)
            unsigned = UNSIGNED.get(x.kind)
            return Term(f"(({x.kind})-({unsigned}){x.text})" if unsigned else f"(-{x.text})", x.kind)
        case ast.BinOp(left=left, op=sign, right=right):
            x, y = _alike(term(left, names), term(right, names))
            symbol, unsigned = SYMBOLS[type(sign)], UNSIGNED.get(x.kind)
            if unsigned:
                return Term(f"(({x.kind})(({unsigned}){x.text} {symbol} ({unsigned}){y.text}))", x.kind)
            return Term(f"({x.text} {symbol} {y.text})", x.kind)
        case ast.Compare(left=left, ops=[sign], comparators=[right]):
            x, y = _alike(term(left, names), term(right, names))
            return Term(f"({x.text} {SYMBOLS[type(sign)]} {y.text})", "b1")
        case ast.IfExp(test=test, body=body, orelse=otherwise):
            x, y = _alike(term(body, names), term(otherwise, names))
            return Term(f"({term(test, names).text} ? {x.text} : {y.text})", x.kind)
        case ast.Call(func=ast.Name(id=name), args=[inner]) if name not in FUNCTIONS:
            return converted(term(inner, names), names[name].kind if name in names else name)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _function(name, _alike(*(term(argument, names) for argument in arguments)))
    raise TypeError(f"expected an expression of a body, found {ast.unparse(node)}")


def _alike(*terms: Term) -> list[Term]:
    """Return terms, with plain numbers in the kind of the others."""
    kind = next((x.kind for x in terms if x.kind), "")
    return [x if x.kind or not kind else Term(number(x.number, kind), kind) for x in terms]


def _function(name: str, terms: Sequence[Term]) -> Term:
    x, kind = terms[0], terms[0].kind
    texts = ", ".join(one.text for one in terms)
    match name:
        case "sigmoid":
            return Term(f"sigmoid_{kind}({texts})", kind)
        case "abs" if kind in UNSIGNED:
            return Term(f"({x.text} < 0 ? ({kind})-({UNSIGNED[kind]}){x.text} : {x.text})", kind)
        case "abs":
            return Term(f"fabs{SUFFIX[kind]}({texts})", kind)
        case "pow" if terms[1].number in POWERS:
            return Term(f"({POWERS[terms[1].number].format(x=x.text, k=kind, f=SUFFIX[kind])})", kind)
    return Term(f"{name}{SUFFIX[kind]}({texts})", kind)


def converted(x: Term, kind: str) -> Term:
    """Return a term in another kind."""
    if kind == x.kind:
        return x
    if not x.kind:
        return Term(number(x.number, kind), kind)
    if kind == "b1":
        return Term(f"({x.text} != 0)", kind)
    if kind in UNSIGNED and x.kind in SUFFIX:
        return Term(f"{kind}_of_{x.kind}({x.text})", kind)
    return Term(f"(({kind}){x.text})", kind)


@cache
def _computed(
    body: str, kinds: tuple[str, ...], kind: str, attrs: tuple[tuple[str, float], ...]
) -> list[str]:
    """Return the lines of an elementwise body, with operands and a mark to be filled in, the value last."""
    names = {f"x{i}": Term(f"{{x{i}}}", k) for i, k in enumerate(kinds)} | {"t": Term("", kind)}
    names |= {name: Term(number(value, kind), kind, value) for name, value in attrs}
    *before, last = applied(body, len(kinds))
    lines = []
    for line in before:
        assert isinstance(line, ast.Assign), f"{body} has a line that names nothing"
        name, value = ast.unparse(line.targets[0]), term(line.value, names)
        lines.append(f"{'' if name in names else f'{value.kind} '}{name}{{mark}} = {value.text};")
        names[name] = Term(f"{name}{{mark}}", value.kind)
    assert isinstance(last, ast.Expr), f"{body} has no result"
    return [*lines, converted(term(last.value, names), kind).text]


def computed(
    op: Op,
    dtype: str,
    operands: Sequence[str],
    dtypes: Sequence[str],
    attrs: Mapping[str, Any],
    mark: str,
) -> tuple[list[str], str]:
    """Return the lines before, and the expression of, what an elementwise op makes of elements.

    Args:
        op: the op.
        dtype: of its result.
        operands: expressions of the elements; those of bools are 0 or 1.
        dtypes: of the operands.
        attrs: of the op.
        mark: an end of names that nobody else uses.
    """
    numbers = tuple((name, value) for name, value in attrs.items() if isinstance(value, float))
    *lines, value = _computed(op.body, tuple(KINDS[x] for x in dtypes), KINDS[dtype], numbers)
    words = {"mark": mark} | {f"x{i}": operand for i, operand in enumerate(operands)}
    return [line.format(**words) for line in lines], value.format(**words)


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
