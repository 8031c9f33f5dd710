"""Python's `ast`: what is below a node stands in its fields."""

import ast
from typing import Any

from nodes import over_nodes

import foldbatch as fb

SOURCES = ["def area(w, h):\n    return w * h", "for x in y:\n    print(x, 2)"]
EXAMPLES = [ast.parse(source) for source in SOURCES]
LABELS = fb.trees.Vocabulary(["Module", "FunctionDef", "Return", "For", "Name", "Call", "BinOp"])


def label(node: Any) -> int:
    """Return the number of a node's class."""
    return LABELS[type(node).__name__]


def children(node: Any) -> list[Any]:
    """Return what is below a node."""
    return list(ast.iter_child_nodes(node))


doors = over_nodes(label, children, len(LABELS))
trees = fb.trees.from_(EXAMPLES)  # with operators in labels, and names and constants as tokens
