"""Formulas of optimizers as calls of NumPy's functions, each of which writes into an array that is there."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from foldbatch.updates import Rule

FUNCTIONS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
}
SCOPE = {name: getattr(np, name) for name in (*FUNCTIONS.values(), "positive", "sqrt")}


class Formula(NamedTuple):
    """A rule for NumPy's arrays.

    Attributes:
        apply: changes a block: ``(p, g, each moment, each number, each scratch array)``, arrays of one shape.
            The gradient stays as it is.
        scratch: how many scratch arrays it takes.
        text: of the function.
    """

    apply: Callable[..., None]
    scratch: int
    text: str


@cache
def formula(rule: Rule) -> Formula:
    """Return a rule as a function of arrays.

    >>> print(formula(Rule(("p = p - rate * (g + m)",), ("m",), ("rate",))).text)
    def apply(p, g, m, rate, s0_):
        add(g, m, s0_)
        multiply(rate, s0_, s0_)
        subtract(p, s0_, p)
    """
    places = {name: f"{name}_" for name in rule.locals}  # arrays of their own: `g` is the caller's
    calls: list[str] = []
    names: dict[str, str] = {}
    deepest = 0
    for line in rule.lines:
        statement = ast.parse(line).body[0]
        assert isinstance(statement, ast.Assign)
        (target,) = statement.targets
        assert isinstance(target, ast.Name)
        place = places.get(target.id, target.id)
        value, depth = _spell(statement.value, place, 0, names, calls)
        if value != place:
            calls.append(f"positive({value}, {place})")
        names[target.id] = place
        deepest = max(deepest, depth)
    scratch = [*places.values(), *(f"s{i}_" for i in range(deepest))]
    text = "\n    ".join(
        [f"def apply({', '.join(['p', 'g', *rule.moments, *rule.numbers, *scratch])}):", *(calls or ["pass"])]
    )
    scope: dict[str, Any] = dict(SCOPE)
    exec(text, scope)  # noqa: S102 - the text is our own
    return Formula(scope["apply"], len(scratch), text)


def _spell(
    node: ast.expr, place: str | None, level: int, names: dict[str, str], calls: list[str]
) -> tuple[str, int]:
    """Append the calls that compute an expression; return where it is then, and how many places it took.

    Args:
        node: the expression.
        place: where it shall be; None for the scratch array of `level`.
        level: the first scratch array that is free.
        names: of arrays that lines above made.
        calls: so far.
    """
    match node:
        case ast.Name(name):
            return names.get(name, name), level
        case ast.Call(ast.Name("sqrt"), [argument]):
            operand, depth = _spell(argument, None, level, names, calls)
            function, operands = "sqrt", [operand]
        case ast.BinOp(left, operator, right):
            # the left operand may be where the result shall be, unless the right one reads what is there
            read = {names.get(part.id, part.id) for part in ast.walk(right) if isinstance(part, ast.Name)}
            there = None if place in read else place
            first, depth = _spell(left, there, level, names, calls)
            free = level + (first == f"s{level}_")
            second, deeper = _spell(right, None, free, names, calls)
            depth = max(depth, deeper)
            function, operands = FUNCTIONS[type(operator)], [first, second]
        case _:
            raise AssertionError(f"no formula: {ast.unparse(node)}")
    made = f"s{level}_" if place is None else place
    calls.append(f"{function}({', '.join([*operands, made])})")
    return made, max(depth, level + (place is None))
