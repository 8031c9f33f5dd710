"""A graph as text: a node a line, and a rail from each value down to the last line that reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from foldbatch.views.drawing import Box

_SIGNS = {"parameter": "□", "constant": "·", "before": "●", "step": "●", "after": "●", "result": "◆"}


def draw_rails(boxes: Sequence[Box]) -> str:
    """Return a drawing of boxes, each after those it reads.

    A rail that a line crosses without a corner is not read there. Sources (``○`` inputs, ``□``
    parameters, ``·`` constants) stand above their first reader.

    >>> a, b = Box("a", "a", "float32", "operand"), Box("b", "b", "float32", "parameter")
    >>> tanh = Box("%0", "%0 tanh", "float32", "step", ("a",))
    >>> print(draw_rails([a, b, tanh, Box("%1", "%1 add", "float32", "step", ("%0", "b"))]))
    ○    a  float32
    ●    %0 tanh  float32  step
    │ □  b  float32
    ●─╯  %1 add  float32  step
    """
    ordered = _late(boxes)
    left = Counter(key for box in boxes for key in set(box.reads))
    rails: list[str | None] = []  # which value runs in each column
    rows: list[tuple[str, Box]] = []
    for box in ordered:
        read = [rails.index(key) for key in dict.fromkeys(box.reads)]
        left.subtract(set(box.reads))
        ending = [i for i in read if left[rails[i] or ""] == 0]
        free = [i for i, key in enumerate(rails) if key is None]
        rail = min(ending or free or [len(rails)])
        if rail == len(rails):
            rails.append(None)
        rows.append((_row(rails, rail, set(read), set(ending), _SIGNS.get(box.kind, "○")), box))
        for i in ending:
            rails[i] = None
        rails[rail] = box.key if left[box.key] else None
        while rails and rails[-1] is None:
            rails.pop()
    width = max((len(row) for row, _ in rows), default=0)
    return "\n".join(f"{row:{width}}  {_words(box)}" for row, box in rows)


def _late(boxes: Sequence[Box]) -> list[Box]:
    """Return the boxes with those that read nothing moved down to their first reader."""
    waiting = {box.key: box for box in boxes if not box.reads}
    ordered: list[Box] = []
    for box in boxes:
        if box.reads:
            ordered += [waiting.pop(key) for key in dict.fromkeys(box.reads) if key in waiting]
            ordered.append(box)
    return [*ordered, *waiting.values()]


def _row(rails: Sequence[str | None], rail: int, read: set[int], ending: set[int], sign: str) -> str:
    """Draw one line: the node at its column, corners where it reads, bars where values pass."""
    first, last = min({rail, *read}), max({rail, *read})
    text = ""
    for i, key in enumerate(rails):
        inside = first <= i <= last
        if i == rail:
            text += sign
        elif i in read:
            ends = i in ending
            shape = ("╰", "┴", "╯") if ends else ("├", "┼", "┤")
            text += shape[0 if i == first else 2 if i == last else 1]
        else:
            text += "│" if key is not None else "─" if inside else " "
        text += "─" if first <= i < last else " "
    return text.rstrip()


def _words(box: Box) -> str:
    stage = f"  {box.kind}" if box.kind in ("before", "step", "after") else ""
    return f"{box.title}  {box.type}{stage}"
