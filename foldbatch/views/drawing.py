"""A graph as a picture: a node a line, rails from values down to where they are read; as text and as SVG."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from foldbatch.system.showing import INK, PAPER, element, page, text

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
STAGES = ("before", "step", "after")
_SIGNS = {"parameter": "□", "constant": "·", **dict.fromkeys(STAGES, "●"), "result": "◆"}
_FILLS = {"parameter": "#eee3fa", "constant": "#6e7781", "before": "#79b1f2", "step": "#f2a654"}
_FILLS |= {"after": "#6cc683", "result": INK}
_FONT = "ui-monospace, Menlo, Consolas, monospace"
_DARK = "@media (prefers-color-scheme:dark){.page{fill:#15191e}text{fill:#e6edf3}.result{fill:#ffffff}}"

# Lengths in pixels. A letter is as wide as in the widest of the usual monospaced fonts.
_LETTER, _LINE, _RAIL, _MARGIN, _RADIUS = 7.3, 22.0, 18.0, 24.0, 5.5


@dataclass(frozen=True, slots=True)
class Box:
    """A node of a drawing."""

    key: str  # tells it from others
    title: str
    type: str
    kind: str  # one of `KINDS`
    reads: tuple[str, ...] = ()  # keys of its operands
    hint: str = ""  # shown where the pointer rests on it

    @property
    def words(self) -> str:
        """What stands beside it."""
        stage = f"  {self.kind}" if self.kind in STAGES else ""
        return f"{self.title}  {self.type}{stage}"


@dataclass(frozen=True, slots=True)
class RailLine:
    """A line of a drawing: a box at a rail, what it reads, and the rails that only pass."""

    box: Box
    rail: int
    read: frozenset[int]  # rails
    ending: frozenset[int]  # of these, the rails that nothing below reads
    passing: frozenset[int]

    @property
    def across(self) -> range:
        """The columns from the first that it touches to the last."""
        touched = {self.rail, *self.read}
        return range(min(touched), max(touched) + 1)


def lines(boxes: Sequence[Box]) -> Iterator[RailLine]:
    """Yield the lines of boxes, which come after those they read; sources move to their first reader."""
    left = Counter(key for box in boxes for key in set(box.reads))
    rails: list[str | None] = []  # which value runs in each column
    for box in _late(boxes):
        read = [rails.index(key) for key in dict.fromkeys(box.reads)]
        left.subtract(set(box.reads))
        ending = [i for i in read if left[rails[i] or ""] == 0]
        free = [i for i, key in enumerate(rails) if key is None]
        rail = min(ending or free or [len(rails)])
        if rail == len(rails):
            rails.append(None)
        passing = frozenset(i for i, key in enumerate(rails) if key is not None) - {*read, rail}
        yield RailLine(box, rail, frozenset(read), frozenset(ending), passing)
        for i in ending:
            rails[i] = None
        rails[rail] = box.key if left[box.key] else None
        while rails and rails[-1] is None:
            rails.pop()


def _late(boxes: Sequence[Box]) -> list[Box]:
    waiting = {box.key: box for box in boxes if not box.reads}
    ordered: list[Box] = []
    for box in boxes:
        if box.reads:
            ordered += [waiting.pop(key) for key in dict.fromkeys(box.reads) if key in waiting]
            ordered.append(box)
    return [*ordered, *waiting.values()]


def as_text(boxes: Sequence[Box]) -> str:
    """Return a drawing of boxes, each after those it reads.

    >>> a, b = Box("a", "a", "float32", "operand"), Box("b", "b", "float32", "parameter")
    >>> tanh = Box("%0", "%0 tanh", "float32", "step", ("a",))
    >>> print(as_text([a, b, tanh, Box("%1", "%1 add", "float32", "step", ("%0", "b"))]))
    ○    a  float32
    ●    %0 tanh  float32  step
    │ □  b  float32
    ●─╯  %1 add  float32  step
    """
    rows = [("".join(_signs(line)).rstrip(), line.box.words) for line in lines(boxes)]
    width = max((len(row) for row, _ in rows), default=0)
    return "\n".join(f"{row:{width}}  {words}" for row, words in rows)


def _signs(line: RailLine) -> Iterator[str]:
    """Yield what stands in each column: the node, corners where it reads, bars where values pass."""
    across = line.across
    for i in range(max({*across, *line.passing}) + 1):
        if i == line.rail:
            yield _SIGNS.get(line.box.kind, "○")
        elif i in line.read:
            yield ("╰┴╯" if i in line.ending else "├┼┤")[(i > across[0]) + (i == across[-1])]
        else:
            yield "│" if i in line.passing else "─" if i in across else " "
        yield "─" if i in across[:-1] else " "


def as_svg(drawings: Mapping[str, Sequence[Box]]) -> str:
    """Return drawings, one below the other under their titles, as one SVG; the first lines tell the colours.

    >>> svg = as_svg({"d": [Box("a", "a", "float32", "operand"), Box("b", "b", "float32", "step", ("a",))]})
    >>> svg[:4], svg.count("<g class=")
    ('<svg', 2)
    """
    kinds = {box.kind for boxes in drawings.values() for box in boxes}
    legend = [(kind, words) for kind, words in KINDS.items() if kind in kinds]
    parts, y, longest = [element("style", _DARK)], _MARGIN, 0
    for kind, words in legend:
        parts += [_node(kind, _MARGIN, y), text(_MARGIN + _RAIL, y + 4, words)]
        y += _LINE
    for title, boxes in drawings.items():
        y += _LINE
        parts.append(text(_MARGIN, y, title, font_size=14, font_weight="bold"))
        drawn = list(lines(boxes))
        right = _MARGIN + _RAIL * (1 + max((max({*line.across, *line.passing}) for line in drawn), default=0))
        inside: list[str] = []
        tops: dict[int, float] = {}  # where the value in each rail begins
        for line in drawn:
            y += _LINE
            inside += _drawn(line, y, right, tops)
            longest = max(longest, len(line.box.words) + round(right / _LETTER))
        parts.append(element("g", *inside))
        y += _LINE
    widest = max([longest, *map(len, drawings), *(len(words) + 4 for _, words in legend)])
    return page(widest * _LETTER + 2 * _MARGIN, y + _MARGIN, *parts, font=_FONT)


def _drawn(line: RailLine, y: float, right: float, tops: dict[int, float]) -> list[str]:
    x, drawn = _MARGIN + _RAIL * line.rail, []
    for i in sorted(line.read):
        at = _MARGIN + _RAIL * i
        bend = f"Q{at:g} {y:g} {at + _RAIL / 2 * (1 if x > at else -1):g} {y:g}H{x:g}" if at != x else ""
        path = f"M{at:g} {tops[i] + _RADIUS:g}V{y - bool(bend) * _RAIL / 2:g}{bend}"
        drawn.append(element("path", d=path, fill="none", stroke="#6e7781"))
    tops[line.rail] = y
    box = line.box
    look = {"class_": "node", "data_key": box.key, "title": box.hint or box.title}
    return [*drawn, element("g", _node(box.kind, x, y), text(right, y + 4, box.words), **look)]


def _node(kind: str, x: float, y: float) -> str:
    look: dict[str, str | float] = {"fill": _FILLS.get(kind, PAPER), "stroke": "#57606a", "class_": kind}
    if kind in ("parameter", "constant"):
        side = 2 * _RADIUS if kind == "parameter" else _RADIUS
        return element("rect", x=x - side / 2, y=y - side / 2, width=side, height=side, **look)
    if dashes := {"feed": "3 2", "cotangent": "1 2"}.get(kind):
        look["stroke_dasharray"] = dashes
    return element("circle", cx=x, cy=y, r=_RADIUS, **look)
