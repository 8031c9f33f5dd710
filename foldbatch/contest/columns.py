"""Fields of rows: which one has the labels, and which one has expressions, where nobody says so."""

import ast
import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from foldbatch.errors import ReadError, shortened, with_nearest
from foldbatch.trees.pyast import parse_python, python_tree
from foldbatch.trees.tree import TreeNode

LABELS = ("label", "target", "class", "category", "y", "answer", "outcome")  # usual names, likely ones first
EXPRESSIONS = ("code", "expr", "expression", "formula", "program", "source")
SAMPLED_ROWS = 500  # rows that decide whether a field holds expressions
PARSED = 0.95  # the share of a field that is Python, from which on it holds expressions
Row = Mapping[str, Any]


def label_field(rows: Sequence[Row], asked: str | None, where: str) -> tuple[str, str]:
    """Return the name of the field of labels, and the sentence that says why, empty where it was asked for.

    It is one with a usual name, or else the last field if its values repeat or are numbers, or else the only
    field whose values repeat.

    Raises:
        ReadError: when there is no such field, or it is not clear which.

    >>> rows = [{"words": [str(i)], "cuisine": ["greek", "thai"][i % 2]} for i in range(40)]
    >>> label_field(rows, None, "recipes")
    ('cuisine', "labels are read from 'cuisine', the last field (--label names another)")
    """
    names = list(dict.fromkeys(key for row in rows for key in row))
    if asked is not None:
        if asked not in names:
            expected = f"a field of the rows: {shortened(map(str, names))}"
            raise ReadError(where, expected, with_nearest(asked, map(str, names)), "name it with --label")
        return asked, ""
    lowered = {str(name).lower(): name for name in reversed(names)}
    for usual in LABELS:
        if usual in lowered:
            return lowered[usual], f"labels are read from {lowered[usual]!r} (--label names another field)"
    repeating = [name for name in names if _repeats([row.get(name) for row in rows])]
    if names and (names[-1] in repeating or _is_numeric([row.get(names[-1]) for row in rows])):
        return names[-1], f"labels are read from {names[-1]!r}, the last field (--label names another)"
    if len(repeating) == 1:
        reason = f"labels are read from {repeating[0]!r}, whose values repeat (--label names another field)"
        return repeating[0], reason
    listed = shortened(map(str, names)) or "none"
    raise ReadError(where, "a field of labels", f"the fields {listed}", "name one of them with --label")


def _repeats(values: Sequence[object]) -> bool:
    """Return whether values are texts or whole numbers of which each is there several times on average."""
    if any(isinstance(value, dict | list | tuple | float) for value in values):
        return False
    different = len({value for value in values if value is not None})
    return 2 <= different <= max(2, min(100, len(values) // 5))


def _is_numeric(values: Sequence[object]) -> bool:
    numbers = [value for value in values if value is not None]
    fits = all(isinstance(value, float) and math.isfinite(value) for value in numbers)
    return fits and bool(numbers)


def typed(texts: Sequence[str]) -> list[object]:
    """Return the cells of a column as numbers where all of them are; an empty cell is None.

    >>> typed(["1", "", "3"]), typed(["1", "2.5"]), typed(["a", "2"])
    ([1, None, 3], [1.0, 2.5], ['a', '2'])
    """
    filled = [text for text in texts if text.strip()]
    for kind in (int, float):
        try:
            numbers = iter([kind(text) for text in filled])
        except ValueError:
            continue
        return [next(numbers) if text.strip() else None for text in texts]
    return [text if text.strip() else None for text in texts]


def expression_field(columns: Mapping[str, Sequence[object]]) -> str | None:
    """Return the name of the column that holds expressions or programs in Python; None where none does.

    >>> expression_field({"name": ["ada", "bob"], "formula": ["x + 1", "f(x) * 2"]})
    'formula'
    """
    likely = sorted(columns, key=lambda name: name.lower() not in EXPRESSIONS)
    return next((name for name in likely if _holds_expressions(columns[name])), None)


def _holds_expressions(values: Sequence[Any]) -> bool:
    """Return whether nearly all texts are Python, and half of them more than a name or a number."""
    texts = [value for value in values if value is not None][:SAMPLED_ROWS]
    if not texts or not all(isinstance(text, str) for text in texts):
        return False
    sizes = Counter(_size(text) for text in texts)
    return sizes[0] <= (1 - PARSED) * len(texts) and sum(sizes[n] for n in (0, 1)) <= len(texts) / 2


def _size(text: str) -> int:
    """Return the number of nodes of a text in Python, at most 2; 0 where it is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of Python about a stranger's text
        try:
            module = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return 0
    simple = len(module.body) == 1 and isinstance(module.body[0], ast.Expr)
    value = module.body[0].value if simple else module  # type: ignore[attr-defined]
    return 1 if isinstance(value, ast.Name | ast.Constant) else 2


def expression_tree(text: str, where: str) -> TreeNode:
    """Return the tree of an expression in Python, or of a program.

    Raises:
        ReadError: when the text is neither.

    >>> expression_tree("x + 1", "cell").size
    3
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = parse_python(text.strip(), where)
        except ReadError as error:
            fix = "mend the row, or name another format with --format"
            raise ReadError(where, "an expression in Python", error.found, fix) from None
    first = module.body[0] if len(module.body) == 1 else None
    return python_tree(first.value if isinstance(first, ast.Expr) else module, where)
