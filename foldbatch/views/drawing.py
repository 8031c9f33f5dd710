"""A graph as a picture: boxes in layers, in SVG that needs nothing else.

Every box lies below those it reads: the layer is the length of the longest path to it. Within a layer
boxes are ordered by the mean place of their neighbours, layer by layer, up and down; the order with the
fewest crossings is kept. An edge over several layers goes through a place of its own in each, so it
never runs behind a box.

Source: Sugiyama, Tagawa and Toda 1981 (Methods for visual understanding of hierarchical system
structures): layers, then barycentres, then places.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

KINDS = {
    "operand": "operand",
    "feed": "data of the example",
    "cotangent": "cotangent",
    "kept": "kept from forward",
    "parameter": "parameter",
    "constant": "constant",
    "before": "before: once per batch",
    "step": "step: once per level",
    "after": "after: once per batch",
    "result": "result",
}
_ROUND = ("operand", "feed", "cotangent", "kept", "result")

# Lengths in pixels. A letter is as wide as in the widest of the usual monospaced fonts.
_LETTER, _HEIGHT, _GAP, _APART, _MARGIN, _HEAD = 7.3, 40.0, 46.0, 18.0, 24.0, 6.0
_SWEEPS = 12

_STYLE = """
.fb-page{fill:#ffffff}.fb-word{fill:#1b1f24;font:12px ui-monospace,Menlo,Consolas,monospace}
.fb-title{font-weight:bold;font-size:14px}.fb-type{fill:#57606a;font-size:11px}
.fb-box{stroke:#57606a;stroke-width:1.2}.fb-edge{fill:none;stroke:#6e7781;stroke-width:1.2}.fb-head{fill:#6e7781}
.fb-operand,.fb-feed,.fb-cotangent,.fb-kept{fill:#ffffff}.fb-feed{stroke-dasharray:5 3}
.fb-cotangent{stroke-dasharray:2 2}.fb-result{fill:#e6e8eb;stroke-width:2.4}
.fb-parameter{fill:#eee3fa;stroke:#8250df;stroke-width:2}.fb-constant{fill:#f6f8fa;stroke:none}
.fb-before{fill:#cfe4ff}.fb-step{fill:#ffd9ad}.fb-after{fill:#c9efd0}
@media (prefers-color-scheme:dark){
.fb-page{fill:#15191e}.fb-word{fill:#e6edf3}.fb-type{fill:#bcc6d0}
.fb-box{stroke:#9aa4af}.fb-edge{stroke:#9aa4af}.fb-head{fill:#9aa4af}
.fb-operand,.fb-feed,.fb-cotangent,.fb-kept{fill:#15191e}.fb-result{fill:#30363d}
.fb-parameter{fill:#3b2a59;stroke:#b48cf2}.fb-constant{fill:#22272e}
.fb-before{fill:#173f6b}.fb-step{fill:#6b3f0a}.fb-after{fill:#17512b}}
""".strip()


@dataclass(frozen=True, slots=True)
class Box:
    """A box: `key` tells it from others, `kind` is one of `KINDS`, `reads` are the keys of its operands.

    `title` and `type` are shown, `hint` where the pointer rests on it.
    """

    key: str
    title: str
    type: str
    kind: str
    reads: tuple[str, ...] = ()
    hint: str = ""


@dataclass(slots=True)
class _Place:
    """A box in the layout, or a point (without a box) where an edge passes a layer; x is its centre."""

    layer: int
    width: float
    box: Box | None = None
    x: float = 0.0

    @property
    def top(self) -> float:
        return self.layer * (_HEIGHT + _GAP)


# Pieces of edges from one layer to the next: from, to, and where on the latter's upper side (0 to 1).
Wires = list[tuple[_Place, _Place, float]]
Near = dict[int, list[tuple[_Place, float]]]


def draw(pictures: Mapping[str, Sequence[Box]]) -> str:
    """Return pictures, one below the other, under a legend and their titles, as one SVG.

    Boxes may come in any order; what they read must be in the same picture, and there must be no circle.
    The colours follow the reader's light or dark scheme.

    >>> text = draw({"d": [Box("a", "a", "float32", "operand"), Box("b", "tanh", "float32", "step", ("a",))]})
    >>> text[:4], text.count("<rect class='fb-box")
    ('<svg', 4)
    """
    legend, width = _legend({box.kind for boxes in pictures.values() for box in boxes})
    parts, y = [legend], 2 * _MARGIN + _HEIGHT
    for title, boxes in pictures.items():
        drawing, right, height = _picture(boxes)
        parts.append(
            f"<text class='fb-word fb-title' x='{_MARGIN:g}' y='{y + 14:.1f}'>{escape(title)}</text>"
        )
        parts.append(f"<g transform='translate({_MARGIN:g} {y + 32:.1f})'>{drawing}</g>")
        width = max(width, right + 2 * _MARGIN, len(title) * _LETTER * 1.2 + 2 * _MARGIN)
        y += height + 32 + 2 * _MARGIN
    page = f"<rect class='fb-page' width='{width:.1f}' height='{y:.1f}'/>"
    head = f"xmlns='http://www.w3.org/2000/svg' width='{width:.1f}' height='{y:.1f}'"
    body = "\n".join([f"<style>{_STYLE}</style>", page, *parts])
    return f"<svg {head} viewBox='0 0 {width:.1f} {y:.1f}' role='img'>\n{body}\n</svg>\n"


def _legend(kinds: set[str]) -> tuple[str, float]:
    parts, x = [], _MARGIN
    for kind, words in KINDS.items():
        if kind not in kinds:
            continue
        width = _width(words)
        parts.append(_rectangle(kind, x, _MARGIN, width, _HEIGHT * 0.6))
        middle = f"x='{x + width / 2:.1f}' y='{_MARGIN + 16:.1f}'"
        parts.append(f"<text class='fb-word fb-type' text-anchor='middle' {middle}>{words}</text>")
        x += width + 8
    return f"<g class='fb-legend'>{''.join(parts)}</g>", x + _MARGIN


def _picture(boxes: Sequence[Box]) -> tuple[str, float, float]:
    """Return a picture's elements, its width and its height."""
    layers, wires, edges = _layers(boxes)
    layers = _ordered(layers, wires)
    _spread(layers, wires)
    places = [place for layer in layers for place in layer]
    left = min((place.x - place.width / 2 for place in places), default=0.0)
    for place in places:
        place.x -= left
    parts = [_edge(points, fraction) for points, fraction in edges]
    parts += [_box(place, place.box) for place in places if place.box]
    right = max((place.x + place.width / 2 for place in places), default=0.0)
    return "\n".join(parts), right, max(len(layers) * (_HEIGHT + _GAP) - _GAP, 0.0)


def _width(words: str) -> float:
    return max(len(words) * _LETTER + 20, _HEIGHT)


# -- layout


def _layers(boxes: Sequence[Box]) -> tuple[list[list[_Place]], Wires, list[tuple[list[_Place], float]]]:
    """Return the layers, the wires between neighbouring layers, and each edge's way and end.

    The end is a fraction of the width of the box's upper side, from 0 to 1.
    """
    number = _depths(boxes)
    places = {b.key: _Place(number[b.key], max(_width(b.title), _width(b.type)), b) for b in boxes}
    layers: list[list[_Place]] = [[] for _ in range(max(number.values(), default=-1) + 1)]
    for place in places.values():
        layers[place.layer].append(place)
    wires: Wires = []
    edges: list[tuple[list[_Place], float]] = []
    for box in boxes:
        for i, key in enumerate(box.reads):
            start, end = places[key], places[box.key]
            passed = [_Place(layer, _APART / 2) for layer in range(start.layer + 1, end.layer)]
            for place in passed:
                layers[place.layer].append(place)
            way = [start, *passed, end]
            fraction = (i + 1) / (len(box.reads) + 1)
            wires += [(x, y, fraction if y is end else 0.5) for x, y in pairwise(way)]
            edges.append((way, fraction))
    return layers, wires, edges


def _depths(boxes: Sequence[Box]) -> dict[str, int]:
    """Return each box's layer: below all boxes that it reads; a source stands just above its first reader."""
    by_key = {box.key: box for box in boxes}
    depth: dict[str, int] = {}
    stack = [box.key for box in boxes]
    while stack:
        key = stack[-1]
        waiting = [x for x in by_key[key].reads if x not in depth]
        stack += waiting
        if not waiting:
            depth[stack.pop()] = max((depth[x] + 1 for x in by_key[key].reads), default=0)
    first: dict[str, int] = {}
    for box in boxes:
        for key in box.reads:
            first[key] = min(depth[box.key], first.get(key, depth[box.key]))
    return {key: first.get(key, 1) - 1 if not by_key[key].reads else layer for key, layer in depth.items()}


def _neighbours(wires: Wires) -> tuple[Near, Near]:
    """Return, by place, the neighbours above and below, each with where the edge meets it."""
    above: Near = {}
    below: Near = {}
    for start, end, fraction in wires:
        above.setdefault(id(end), []).append((start, 0.5))
        below.setdefault(id(start), []).append((end, fraction))
    return above, below


def _ordered(layers: list[list[_Place]], wires: Wires) -> list[list[_Place]]:
    """Return the layers, each in an order that makes few edges cross."""
    above, below = _neighbours(wires)
    best, fewest = [list(layer) for layer in layers], _crossings(layers, below)
    rank = {id(place): i for layer in layers for i, place in enumerate(layer)}
    for sweep in range(_SWEEPS):
        near = above if sweep % 2 == 0 else below

        def mean(place: _Place) -> float:
            others = near.get(id(place)) or [(place, 0.5)]
            return sum(rank[id(x)] + fraction for x, fraction in others) / len(others)

        for layer in layers if sweep % 2 == 0 else reversed(layers):
            layer.sort(key=mean)
            rank |= {id(place): i for i, place in enumerate(layer)}
        crossings = _crossings(layers, below)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    return best


def _crossings(layers: list[list[_Place]], below: Near) -> int:
    """Count pairs of edges that end in another order than they start."""
    rank = {id(place): i for row in layers for i, place in enumerate(row)}
    count = 0
    for layer in layers:
        ends: list[float] = []
        for place in layer:
            of_place = sorted(rank[id(x)] + fraction for x, fraction in below.get(id(place), ()))
            count += sum(len(ends) - bisect(ends, end) for end in of_place)
            for end in of_place:
                insort(ends, end)
    return count


def _spread(layers: list[list[_Place]], wires: Wires) -> None:
    """Give each place an x near its neighbours', in order and without overlap."""
    above, below = _neighbours(wires)
    for layer in layers:
        _apart(layer, [0.0] * len(layer))
    for sweep in range(_SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            near = above if sweep % 2 == 0 else below
            wanted = []
            for place in layer:
                others = near.get(id(place)) or [(place, 0.5)]
                wanted.append(sum(x.x for x, _ in others) / len(others))
            _apart(layer, wanted)


def _apart(layer: Sequence[_Place], wanted: Sequence[float]) -> None:
    """Set x near the wanted x, without overlap: the mean of pushing right and of pushing left."""
    needed = [(a.width + b.width) / 2 + _APART for a, b in pairwise(layer)]
    right, left = list(wanted), list(wanted)
    for i, distance in enumerate(needed):
        right[i + 1] = max(right[i + 1], right[i] + distance)
    for i, distance in reversed(list(enumerate(needed))):
        left[i] = min(left[i], left[i + 1] - distance)
    for place, a, b in zip(layer, right, left, strict=True):
        place.x = (a + b) / 2


# -- elements


def _box(place: _Place, box: Box) -> str:
    x, top = place.x, place.top
    words = f"<text class='fb-word' text-anchor='middle' x='{x:.1f}'"
    return (
        f"<g class='fb-node' data-key='{escape(box.key)}'><title>{escape(box.hint or box.title)}</title>"
        f"{_rectangle(box.kind, x - place.width / 2, top, place.width, _HEIGHT)}"
        f"{words} y='{top + 17:.1f}'>{escape(box.title)}</text>"
        f"{words.replace('fb-word', 'fb-word fb-type')} y='{top + 32:.1f}'>{escape(box.type)}</text></g>"
    )


def _rectangle(kind: str, x: float, y: float, width: float, height: float) -> str:
    size = f"x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}'"
    return f"<rect class='fb-box fb-{kind}' {size} rx='{height / 2 if kind in _ROUND else 3:g}'/>"


def _edge(way: Sequence[_Place], fraction: float) -> str:
    """Return a line from the lower side of the first place to the upper side of the last, and its head."""
    first, last = way[0], way[-1]
    end = last.x + (fraction - 0.5) * last.width * 0.8
    line = f"M{first.x:.1f} {first.top + _HEIGHT:.1f}"
    x, y = first.x, first.top + _HEIGHT
    for place in way[1:]:
        to, down = (place.x, place.top) if place is not last else (end, last.top - _HEAD)
        bend = (down - y) / 2
        line += f"C{x:.1f} {y + bend:.1f} {to:.1f} {down - bend:.1f} {to:.1f} {down:.1f}"
        x, y = to, place.top + _HEIGHT
        line += f"V{y:.1f}" if place is not last else ""
    tip = f"M{end:.1f} {last.top:.1f}l-4 -{_HEAD:g}h8z"
    return f"<path class='fb-edge' d='{line}'/><path class='fb-head' d='{tip}'/>"


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
