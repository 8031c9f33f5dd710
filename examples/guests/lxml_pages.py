"""lxml: an element is a list of elements. Comments are among them, with a function for a tag."""

from typing import Any

import lxml.html
from nodes import over_nodes

import foldbatch as fb

PAGES = ["<p>a <b>fine</b> film <!-- of 1995 --></p>", "<ul><li>one<li>two</ul>"]
EXAMPLES = [lxml.html.document_fromstring(page) for page in PAGES]
LABELS = fb.trees.Vocabulary(["html", "body", "p", "b", "ul", "li"])


def label(element: Any) -> int:
    """Return the number of an element's tag."""
    return LABELS[element.tag]


def children(element: Any) -> list[Any]:
    """Return the elements below one."""
    return [child for child in element if isinstance(child.tag, str)]


doors = over_nodes(label, children, len(LABELS))
trees = fb.trees.from_(EXAMPLES)  # tokens are texts of elements
classes = fb.trees.from_(EXAMPLES, label="class")  # or label them by any attribute
