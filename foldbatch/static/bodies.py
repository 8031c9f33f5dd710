"""Bodies: what an op makes of single elements, once, for all engines that compile.

A body stands in the op's paragraph (`Op.body`). It is a few lines in a small part of Python.

*Elementwise ops*: lines that name values, and at last an expression. ``a``, ``b``, ``c`` are an element of
each operand; of more operands a body of two is applied from the left. An attribute has its own name. Values
have names of two letters or more: an engine's text may have indices of one.

*Along a line* (an axis, all those of a sum, or the elements of a call's sequence): ``x[k]`` and ``y[k]`` are
elements of operand and result, for each k in order; ``x`` and ``y`` those of one that has no such axis;
``label`` is an index.

==============================  =======================================================================
``y[k] = e``, ``y = e``         an expression, for all k; ``y[label] = e`` unless there is no such element
``total = sum(e)``              over all k, in order; floats in float64; whole numbers wrap, truths are joined
``top = greatest(e)``           over all k, NaN where there is one; ``at, top =`` with the last k of equals
``at, top = first(e)``          the same with the first k
``name = e``                    once a line
==============================  =======================================================================

Expressions: ``+ - * /`` round as written, but for a sum of a product, which may be rounded once; whole
numbers wrap around. With NaN only ``!=`` holds of all comparisons; ``|`` and ``&`` join what holds; ``e if c
else d``. A plain number is of the kind of what it meets. ``t(e)`` converts to the result's kind, ``f8(e)`` to
float64: a float that is too large becomes the nearest whole number, NaN 0, and a truth is ``e != 0``.
Functions have the names and the edges that C gives them: abs (of whole numbers, too), copysign, cos, exp,
floor, fmod, log, log1p, pow, rint, sin, sqrt, tanh; and ``sigmoid``, which does not overflow.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from foldbatch.static.places import Place, without
from foldbatch.static.statements import Statement

CONVERSIONS = frozenset({"t", "f8"})
_OPERANDS = {"a": "x0", "b": "x1", "c": "x2"}
NESTED = (
    32  # how often a body of two operands is nested before its value gets a name: Python's stack has an end
)


@cache
def lines_of(body: str) -> tuple[ast.stmt, ...]:
    return tuple(ast.parse(body).body)


@cache
def called(body: str) -> frozenset[str]:
    """Return the names of the functions that a body calls.

    >>> sorted(called("f8(log1p(exp(-a)))"))
    ['exp', 'log1p']
    """
    calls = [node for line in lines_of(body) for node in ast.walk(line) if isinstance(node, ast.Call)]
    return frozenset(ast.unparse(call.func) for call in calls) - CONVERSIONS


class _Renamed(ast.NodeTransformer):
    """Puts other expressions in the place of names and elements."""

    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.names.get(node.id, node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return self.names.get(ast.unparse(node)) or self.generic_visit(node)


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return Python text with expressions in the place of names and elements.

    >>> renamed("y[k] = x[k] - top", {"x[k]": "x", "y[k]": "b[k * q]"})
    'b[k * q] = x - top'
    """
    expressions = {name: ast.parse(to, mode="eval").body for name, to in names.items()}
    return ast.unparse(_Renamed(expressions).visit(ast.parse(text)))


@cache
def applied(body: str, count: int) -> tuple[ast.stmt, ...]:
    """Return the lines of an elementwise body for so many operands, ``x0``, ``x1`` and so on.

    >>> [ast.unparse(line) for line in applied("a + b", 3)]
    ['x0 + x1 + x2']
    >>> ast.unparse(applied("a + b", 35)[-1])
    'part1 + x33 + x34'
    """
    xs: list[ast.expr] = [ast.Name(f"x{i}") for i in range(count)]
    names = {node.id for line in lines_of(body) for node in ast.walk(line) if isinstance(node, ast.Name)}
    arity = len(names & _OPERANDS.keys())
    if count == arity:
        operands = _Renamed(dict(zip(_OPERANDS, xs, strict=False)))
        return tuple(operands.visit(line) for line in ast.parse(body).body)
    lines, total = list[ast.stmt](), xs[0]
    for number, x in enumerate(xs[1:], 1):
        (line,) = ast.parse(body).body
        assert isinstance(line, ast.Expr), f"{body} takes {arity} operands"
        total = _Renamed({"a": total, "b": x}).visit(line.value)
        if number % NESTED == 0 and number < count - 1:
            name = f"part{number // NESTED}"
            lines.append(ast.Assign([ast.Name(name)], total, lineno=0))
            total = ast.Name(name)
    return (*lines, ast.Expr(total))


@cache
def template(body: str, count: int) -> tuple[tuple[str, ...], str]:
    """Return an elementwise body as Python to be formatted: lines, and the expression of the result.

    In braces stand the operands, ``t``, and ``mark``, which makes the names of values differ.

    >>> template("less = a < b; a if less else b", 2)
    (('less{mark} = {x0} < {x1}',), '{x0} if less{mark} else {x1}')
    """
    *before, last = applied(body, count)
    assert isinstance(last, ast.Expr), f"{body} has no result"
    assigned = {
        ast.unparse(target) for line in before if isinstance(line, ast.Assign) for target in line.targets
    }
    names = (
        {name: f"{name}{{mark}}" for name in assigned}
        | {f"x{i}": f"{{x{i}}}" for i in range(count)}
        | {"t": "{t}"}
    )
    inside = _Renamed({name: ast.Name(text) for name, text in names.items()})
    texts = [ast.unparse(inside.visit(ast.parse(ast.unparse(line)).body[0])) for line in (*before, last)]
    return tuple(texts[:-1]), texts[-1]


@dataclass(frozen=True, slots=True)
class Line:
    """Where the lines of an op lie."""

    length: int  # elements of a line
    # of ``x``, ``y`` and ``label``, as far as the body names them, without the axis along the line
    places: dict[str, Place]
    steps: dict[str, int]  # of each, elements from one to the next along the line; 1 where it has one element


def line_of(body: str, statement: Statement) -> Line:
    """Return the place of a statement's lines in memory, along its axis or else the last one."""
    read, *labels = statement.reads
    first = "x" if "x" in body else "label"
    places = {first: read, "y": statement.result, **dict(zip(("label",), labels, strict=False))}
    longest = read if "x[" in body else statement.result
    axis = statement.attrs.get("axis", len(longest.shape) - 1)
    along = {name for name in places if f"{name}[" in body}
    return Line(
        longest.shape[axis],
        {name: without(place, axis) if name in along else place for name, place in places.items()},
        {name: place.strides[axis] if name in along else 1 for name, place in places.items()},
    )
