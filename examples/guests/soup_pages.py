"""BeautifulSoup: a tag's contents are tags and strings."""

from typing import Any

from bs4 import BeautifulSoup
from nodes import over_nodes

import foldbatch as fb

PAGES = ["<p>a <b>fine</b> film <!-- of 1995 --></p>", "<ul><li>one</li><li>two</li></ul>"]
EXAMPLES = [BeautifulSoup(page, "html.parser") for page in PAGES]
LABELS = fb.trees.Vocabulary(["p", "b", "ul", "li"])  # the page itself is number 0


def label(tag: Any) -> int:
    """Return the number of a tag's name."""
    return LABELS[tag.name]


def children(tag: Any) -> list[Any]:
    """Return the tags below one."""
    return [part for part in tag.contents if not isinstance(part, str)]


doors = over_nodes(label, children, len(LABELS))
trees = fb.trees.from_(EXAMPLES)
