"""A tree as text, one node a line, cut off at a number of levels and of nodes.

In come a tree's flat arrays, out comes a string; nothing recurses.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foldbatch.trees.postorder import Label


def draw(
    root: int,
    kids: Sequence[Sequence[int]],
    labels: Sequence[Label],
    tokens: Sequence[str | None],
    sizes: NDArray[np.int32],
    *,
    levels: int,
    nodes: int,
) -> str:
    """Return the drawing of `nodes` nodes, down to `levels` levels below the node `root`.

    ``kids`` lists every node's children, ``sizes: [n] int32`` has how many nodes each subtree has. A node
    without a label is drawn as ``*``; what is cut off is counted.
    """
    lines: list[str] = []
    stack = [(root, "", "", 0)]  # node, what precedes it, what precedes its children, level
    while stack and len(lines) < nodes:
        node, lead, indent, level = stack.pop()
        token = tokens[node]
        words = ["*" if labels[node] is None else _show(str(labels[node]))]
        if token is not None:
            words.append(_show(token))
        below = kids[node]
        if below and level >= levels:
            words.append(f"… {sizes[node] - 1} more below")
        else:
            for place in range(len(below) - 1, -1, -1):
                elbow, bar = ("├─ ", "│  ") if place < len(below) - 1 else ("└─ ", "   ")
                stack.append((below[place], indent + elbow, indent + bar, level + 1))
        lines.append(lead + " ".join(words))
    if stack:
        lines.append(f"… {sum(sizes[entry[0]] for entry in stack)} more nodes")
    return "\n".join(lines)


def _show(text: str) -> str:
    """Spell out what would break a line or not be seen, such as line ends and no-break spaces."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text) or "''"
