"""libcst: nodes stand in fields; `node.children` has them as in the text, at three times the cost."""

from typing import Any

import libcst
from nodes import over_nodes

import foldbatch as fb

SOURCES = ["def area(w, h):\n    return w * h\n", "for x in y:\n    print(x, 2)  # twice\n"]
EXAMPLES = [libcst.parse_module(source) for source in SOURCES]
LABELS = fb.trees.Vocabulary(["Module", "FunctionDef", "Return", "For", "Name", "Call", "SimpleWhitespace"])


def label(node: Any) -> int:
    """Return the number of a node's class."""
    return LABELS[type(node).__name__]


def children(node: Any) -> list[Any]:
    """Return all that is below a node, blanks and commas as well."""
    below: list[Any] = []
    for name in node.__dataclass_fields__:
        part = getattr(node, name)
        if isinstance(part, libcst.CSTNode):
            below.append(part)
        elif isinstance(part, list | tuple):
            below += [one for one in part if isinstance(one, libcst.CSTNode)]
    return below


doors = over_nodes(label, children, len(LABELS))
trees = fb.trees.from_(EXAMPLES)  # without blanks and punctuation
