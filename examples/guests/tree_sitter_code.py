"""tree-sitter: programs in any language; types of nodes are numbers, and nodes without names punctuation."""

from typing import Any

import tree_sitter_javascript
import tree_sitter_python
from nodes import over_nodes
from tree_sitter import Language, Parser

import foldbatch as fb

PYTHON, JAVASCRIPT = (
    Language(grammar.language()) for grammar in (tree_sitter_python, tree_sitter_javascript)
)
EXAMPLES = [
    Parser(PYTHON).parse(b"def area(w, h):\n    return w * h\n").root_node,
    Parser(PYTHON).parse(b"for x in y:\n    print(x)\n").root_node,
]
SCRIPTS = [Parser(JAVASCRIPT).parse(b"const area = (w, h) => w * h;").root_node]


def label(node: Any) -> int:
    """Return the number of a node's type in its grammar."""
    return int(node.kind_id)


def children(node: Any) -> list[Any]:
    """Return what is below a node, without punctuation."""
    return list(node.named_children)


doors = over_nodes(label, children, max(PYTHON.node_kind_count, JAVASCRIPT.node_kind_count))
trees = fb.trees.from_(EXAMPLES)
same = [fb.trees.code_tree("const area = (w, h) => w * h;", "javascript")]  # parses it, too
