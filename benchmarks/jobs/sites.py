"""Sites: two operands whose order counts, and the syntax around them: Python by `ast`, others by tree-sitter.

A `Part` is a node of a syntax tree of any language. A `Site` is a statement seen from two operands: these,
and the parts above them, one by one, each with what else stands in it.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

ORDERED = ("Sub", "Div", "FloorDiv", "Mod", "LShift", "RShift", "Lt", "LtE", "Gt", "GtE")
SIGNS = ("-", "/", "%", "<<", ">>", "<", "<=", ">", ">=")  # the same in JavaScript
LARGEST = 60  # parts of a statement
LONGEST = 40  # characters of a word


class Part(NamedTuple):
    """A node: its kind, its word if it has one, and the parts below it, each with its role.

    `ordered` are the places of two operands below it whose order counts, if there are such.
    """

    kind: str
    word: str | None
    below: tuple[tuple[str, Part], ...]
    ordered: tuple[int, int] | None = None


class Step(NamedTuple):
    """A part above the operands: its kind and the role of what leads down; what is before that and after."""

    kind: str
    before: tuple[Part, ...]
    after: tuple[Part, ...]


class Site(NamedTuple):
    """Two operands, the kind of the part that they stand in, and the steps from the statement down to it."""

    kind: str
    steps: tuple[Step, ...]
    first: Part
    second: Part


def swapped(site: Site) -> Site:
    """Return the site with its operands in the other order."""
    return site._replace(first=site.second, second=site.first)


def size(part: Part) -> int:
    """Return how many nodes a part has."""
    return 1 + sum(size(below) for _, below in part.below)


def sites(statement: Part) -> Iterator[Site]:
    """Yield the sites of a statement that is not too large; not those whose operands are equal."""
    if size(statement) > LARGEST:
        return
    waiting: list[tuple[Part, tuple[Step, ...]]] = [(statement, ())]
    while waiting:
        part, steps = waiting.pop()
        parts = [below for _, below in part.below]
        if part.ordered and parts[part.ordered[0]] != parts[part.ordered[1]]:
            first, second = part.ordered
            inside = Step(part.kind, tuple(parts[:first]), tuple(parts[second + 1 :]))
            yield Site(part.kind, (*steps, inside), parts[first], parts[second])
        for place, (role, below) in enumerate(part.below):
            step = Step(f"{part.kind} {role}", tuple(parts[:place]), tuple(parts[place + 1 :]))
            waiting.append((below, (*steps, step)))


# -- Python

_LEFT_OUT = (
    ast.stmt,
    ast.excepthandler,
    ast.match_case,
    ast.expr_context,
    ast.operator,
    ast.cmpop,
    ast.boolop,
)


def python_statements(text: str) -> Iterator[Part]:
    """Yield the statements of a module, each without the statements inside of it.

    Raises:
        SyntaxError: when the text is no Python.
        ValueError: when it holds a null byte.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the text's deprecated spellings
        module = ast.parse(text)
    for node in ast.walk(module):
        if isinstance(node, ast.stmt):
            yield _python_part(node)


def _python_part(node: ast.AST) -> Part:
    kind, word = type(node).__name__, None
    below: list[tuple[str, Part]] = []
    operators = [
        type(each).__name__ for each in (getattr(node, "op", None), *getattr(node, "ops", ())) if each
    ]
    for role, value in ast.iter_fields(node):
        for place, item in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(item, ast.AST) and not isinstance(item, (*_LEFT_OUT, ast.unaryop)):
                below.append((f"{role}{min(place, 3)}", _python_part(item)))
            elif role in ("id", "attr", "arg", "name", "value", "module") and isinstance(
                item, str | int | float
            ):
                word = str(item)[:LONGEST]
    ordered = None
    if isinstance(node, ast.BinOp | ast.Compare) and len(operators) == 1 and operators[0] in ORDERED:
        text = operators[0] == "Mod" and isinstance(getattr(node, "left", None), ast.Constant | ast.JoinedStr)
        ordered = None if text else (0, 1)  # a text that is filled in is the first operand
    elif isinstance(node, ast.Call) and len(node.args) == 2:
        ordered = None if any(isinstance(each, ast.Starred) for each in node.args) else (1, 2)
    return Part(":".join([kind, *operators]), word, tuple(below), ordered)


# -- JavaScript


@cache
def _parser() -> Any:
    import tree_sitter_javascript  # noqa: PLC0415 - optional
    from tree_sitter import Language, Parser  # noqa: PLC0415 - optional

    return Parser(Language(tree_sitter_javascript.language()))


def javascript_statements(text: str) -> Iterator[Part]:
    """Yield the statements and declarations of a script, each without the statements inside of it."""
    waiting = [_parser().parse(text.encode()).root_node]
    while waiting:
        node = waiting.pop()
        waiting += node.named_children
        if _is_statement(node) and node.type != "statement_block":
            yield _javascript_part(node)


def _is_statement(node: Any) -> bool:
    return bool(node.type.endswith(("statement", "declaration", "statement_block", "class_body")))


def _javascript_part(node: Any) -> Part:
    below: list[tuple[str, Part]] = []
    operands = []
    for place, child in enumerate(node.children):
        if child.is_named and child.type != "comment" and not _is_statement(child):
            role = node.field_name_for_child(place) or str(min(len(below), 3))
            if role in ("left", "right"):
                operands.append(len(below))
            below.append((role, _javascript_part(child)))
    sign = node.child_by_field_name("operator")
    kind = node.type if sign is None else f"{node.type}:{sign.text.decode()}"
    word = None if below or node.named_child_count else node.text.decode()[:LONGEST]
    binary = node.type == "binary_expression" and sign.text.decode() in SIGNS and operands == [0, 1]
    call = node.type == "arguments" and [part.kind != "spread_element" for _, part in below] == [True, True]
    return Part(kind, word, tuple(below), (0, 1) if binary or call else None)
