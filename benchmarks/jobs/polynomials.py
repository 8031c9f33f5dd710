"""Polynomials of SymPy, and which way to write each has the fewest operations.

SymPy can leave a polynomial as it is, factor it, or write it in Horner's form. Each way is the best for some;
to know which, all must be tried, and factoring is slow. The label is computed: the way in whose result
`sympy.count_ops` counts the fewest operations, and among equals the first one of `WAYS`.
"""

from __future__ import annotations

import random
from typing import Any

import sympy

WAYS = ("keep", "factor", "horner")
SYMBOLS = sympy.symbols("x y z")
LEAST, MOST = 10, 50  # nodes of an expression


def drawn(rng: random.Random, depth: int) -> Any:
    """Return a random polynomial, parts of which have been expanded."""
    kind = rng.random()
    if depth == 0 or kind < 0.1:
        symbol, form = rng.choice(SYMBOLS), rng.random()
        if form < 0.5:
            return symbol
        if form < 0.7:
            return symbol + rng.choice([-2, -1, 1, 2])
        return symbol * rng.choice([-1, 2, 3]) if form < 0.85 else symbol**2
    if kind < 0.55:
        found = sympy.Add(*(drawn(rng, depth - 1) for _ in range(rng.choice([2, 2, 3]))))
    elif kind < 0.92:
        found = sympy.Mul(drawn(rng, depth - 1), drawn(rng, depth - 1))
    else:
        found = sympy.Pow(drawn(rng, depth - 1), 2)
    return sympy.expand(found) if rng.random() < 0.3 else found


def operations(expression: Any) -> tuple[int, ...]:
    """Return how many operations an expression has when it is written in each of the `WAYS`.

    >>> operations(sympy.sympify("x**2 + 2*x*y + y**2"))
    (6, 2, 5)
    """
    expanded = sympy.expand(expression)
    written = (expression, sympy.factor(expanded), sympy.horner(expanded))
    return tuple(int(sympy.count_ops(each)) for each in written)


def polynomials(count: int, seed: int = 0) -> list[tuple[Any, int]]:
    """Return so many different polynomials, each with the number of the best way; about 20 ms each."""
    rng, seen = random.Random(seed), set()  # noqa: S311 - no secrets
    found: list[tuple[Any, int]] = []
    while len(found) < count:
        expression = drawn(rng, 3)
        size = sum(1 for _ in sympy.preorder_traversal(expression))
        if LEAST <= size <= MOST and expression not in seen and not sympy.expand(expression).is_number:
            seen.add(expression)
            counts = operations(expression)
            found.append((expression, counts.index(min(counts))))
    return found
