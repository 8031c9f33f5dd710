"""The other embedded data set: expressions of max and min over digits, and the digit that each comes to.

Source: the task is that of Nangia and Bowman 2018 (ListOps), with two of its four operators.
"""

import ast
import random
from functools import cache
from typing import Any

from foldbatch.errors import ReadError
from foldbatch.trees.tree import Tree

OPERATORS = {"max": max, "min": min}
DIGIT = "digit"  # the label of a leaf
DEEPEST, MOST = 3, 3  # levels of operators, and operands of one
SIZES = {"train": 12_000, "dev": 500, "test": 1000}


@cache
def random_expressions(seed: int = 0) -> dict[str, list[tuple[Tree, str]]]:
    """Return trees with their values as text, all different, in the parts train, dev and test.

    >>> part = random_expressions()["test"]
    >>> len(part), part[0][1] in "0123456789"
    (1000, True)
    """
    rng, drawn = random.Random(seed), dict[Any, None]()  # noqa: S311 - no secret is made of it
    while len(drawn) < sum(SIZES.values()):
        nested = _drawn(rng, DEEPEST)
        if nested[0] != DIGIT:
            drawn[nested] = None
    samples = ((Tree.from_nested(nested), str(_value(nested))) for nested in drawn)
    return {part: [next(samples) for _ in range(size)] for part, size in SIZES.items()}


def parse_expression(text: str, where: str = "expression") -> Tree:
    """Return the tree of an expression as Python writes it.

    >>> print(parse_expression("max(3, min(7, 2))").draw())
    max
    ├─ digit 3
    └─ min
       ├─ digit 7
       └─ digit 2
    """
    try:
        return Tree.from_nested(_parsed(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ValueError, RecursionError):
        fix = "for example max(3, min(7, 2))"
        raise ReadError(where, "max and min of digits", repr(text.strip()[:40]), fix) from None


def _parsed(node: ast.expr) -> Any:
    match node:
        case ast.Constant(int(digit)) if type(digit) is int and 0 <= digit <= 9:
            return DIGIT, str(digit)
        case ast.Call(ast.Name(name), [_, *_] as operands, []) if name in OPERATORS:
            return name, *map(_parsed, operands)
    raise ValueError


def _drawn(rng: random.Random, depth: int) -> Any:
    if depth == 0 or rng.random() < 1 / 4:
        return DIGIT, str(rng.randrange(10))
    return rng.choice([*OPERATORS]), *(_drawn(rng, depth - 1) for _ in range(rng.randint(2, MOST)))


def _value(nested: Any) -> int:
    name, *operands = nested
    return int(operands[0]) if name == DIGIT else OPERATORS[name](map(_value, operands))
