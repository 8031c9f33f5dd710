"""Drawings as lists of shapes: lines, circles, boxes and texts at places, rendered as SVG or by matplotlib.

Lengths are pixels, x to the right and y down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TypeAlias
from xml.etree.ElementTree import Element, SubElement, tostring

from foldbatch.views.plots import DOTS, INK, Plot, sheet

PAPER = "#ffffff"
PALE = "#9aa4af"


@dataclass(frozen=True, slots=True)
class Line:
    """A line between two places, or an arrow to the second one, which may be bent."""

    x1: float
    y1: float
    x2: float
    y2: float
    arrow: bool = False
    bend: float = 0.0  # how far the middle of an arrow lies beside the straight line, to its right


@dataclass(frozen=True, slots=True)
class Circle:
    """A circle."""

    x: float
    y: float
    radius: float
    fill: str
    stroke: str = INK
    stroke_width: float = 1
    title: str = ""  # what a browser shows where the mouse points
    kind: str = ""  # a class, for style sheets


@dataclass(frozen=True, slots=True)
class Box:
    """A box of a colour; with a title and an outline, or without."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A line of words that begins at a place, or has its middle there; y is where letters stand."""

    x: float
    y: float
    words: str
    middle: bool = False
    fill: str = INK


Shape: TypeAlias = Line | Circle | Box | Text
Size: TypeAlias = tuple[float, float]  # width and height
LETTER = 7.0  # about the width of a letter


def as_svg(shapes: Sequence[Shape], size: Size) -> str:
    """Return a drawing as SVG.

    >>> print(as_svg([Text(1, 2, "a & b")], (10, 5)).rpartition("/>")[2].strip())
    <text x="1" y="2" fill="#1b1f24">a &amp; b</text></svg>
    """
    width, height = size
    extent = {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"}
    font = {"font-family": "system-ui, sans-serif", "font-size": "12"}
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **extent, **font})
    _add(root, "rect", width=width, height=height, fill=PAPER)
    for shape in shapes:
        _add_shape(root, shape)
    return tostring(root, encoding="unicode") + "\n"


def _add_shape(root: Element, shape: Shape) -> None:
    """Add the element of a shape."""
    match shape:
        case Line(x1, y1, x2, y2, arrow=False):
            _add(root, "line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=PALE)
        case Line():
            _add_arrow(root, shape)
        case Circle(x, y, radius, fill, stroke, stroke_width, title, kind):
            look: dict[str, str | float] = {"class": kind} if kind else {}
            look |= {"fill": fill, "stroke": stroke}
            look |= {"stroke_width": stroke_width} if stroke_width != 1 else {}
            _title(_add(root, "circle", cx=x, cy=y, r=radius, **look), title)
        case Box(x, y, width, height, fill, stroke, title):
            outline: dict[str, str | float] = {"stroke": stroke, "rx": 4} if stroke else {}
            _title(_add(root, "rect", x=x, y=y, width=width, height=height, fill=fill, **outline), title)
        case Text(x, y, words, middle, fill):
            anchor: dict[str, str | float] = {"text_anchor": "middle"} if middle else {}
            _add(root, "text", words, x=x, y=y, **anchor, fill=fill)


def _add_arrow(root: Element, arrow: Line) -> None:
    """Add a bent line with a head."""
    (x, y), (across, down) = _corner(arrow)
    path = f"M {arrow.x1:g} {arrow.y1:g} Q {x:.4g} {y:.4g} {arrow.x2:g} {arrow.y2:g}"
    _add(root, "path", d=path, fill="none", stroke=PALE)
    backs = [
        (arrow.x2 - 7 * across + side * down, arrow.y2 - 7 * down - side * across) for side in (-3.0, 3.0)
    ]
    corners = " ".join(f"{x:.5g},{y:.5g}" for x, y in [(arrow.x2, arrow.y2), *backs])
    _add(root, "polygon", points=corners, fill=PALE)


def _corner(arrow: Line) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the control point of a bent line, and the direction, of length 1, in which it ends."""
    across, down = arrow.x2 - arrow.x1, arrow.y2 - arrow.y1
    length = (across**2 + down**2) ** 0.5 or 1.0
    x = (arrow.x1 + arrow.x2) / 2 - 2 * arrow.bend * down / length
    y = (arrow.y1 + arrow.y2) / 2 + 2 * arrow.bend * across / length
    across, down = arrow.x2 - x, arrow.y2 - y
    length = (across**2 + down**2) ** 0.5 or 1.0
    return (x, y), (across / length, down / length)


def _title(element: Element, words: str) -> None:
    if words:
        _add(element, "title", words)


def _add(parent: Element, name: str, words: str = "", /, **attributes: str | float) -> Element:
    """Return a new element inside of another; what cannot be printed, XML may not have."""
    written = {
        key.replace("_", "-"): value if isinstance(value, str) else f"{round(value, 2):.10g}"
        for key, value in attributes.items()
    }
    element = SubElement(parent, name, written)
    element.text = printable(words)
    return element


def printable(words: str) -> str:
    r"""Return words with what cannot be printed written as Python does.

    >>> printable("a\nb")
    'a\\nb'
    """
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in words)


LARGEST = 40.0  # inches of a side of a plot; what is larger is drawn smaller


def as_plot(shapes: Sequence[Shape], size: Size) -> Plot:
    """Return a drawing as a figure of matplotlib, for what shows no SVG."""
    width, height = (max(length, 1) for length in size)
    shrunk = min(1.0, LARGEST * DOTS / max(width, height))
    figure, (axes,) = sheet(width / DOTS * shrunk, height / DOTS * shrunk)
    figure.set_layout_engine("none")
    axes.set_position((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    patches = import_module("matplotlib.patches")
    points = 12 * 72 / DOTS * shrunk  # of letters as high as those of the SVG
    for order, shape in enumerate(shapes):
        match shape:
            case Line(x1, y1, x2, y2, arrow=False):
                axes.plot([x1, x2], [y1, y2], color=PALE, linewidth=0.8, zorder=order)
            case Line(x1, y1, x2, y2):
                corner, _ = _corner(shape)
                path = import_module("matplotlib.path").Path([(x1, y1), corner, (x2, y2)], [1, 3, 3])
                look = {"arrowstyle": "-|>", "mutation_scale": 8 * shrunk, "fill": False}
                axes.add_patch(patches.FancyArrowPatch(path=path, color=PALE, zorder=order, **look))
            case Circle(x, y, radius, fill, stroke, stroke_width):
                paint = {"facecolor": fill, "edgecolor": stroke, "linewidth": 0.7 * stroke_width}
                axes.add_patch(patches.Circle((x, y), radius, **paint, zorder=order))
            case Box(x, y, across, down, fill, stroke):
                paint = {"facecolor": fill, "edgecolor": stroke or "none", "linewidth": 0.7}
                axes.add_patch(patches.Rectangle((x, y), across, down, **paint, zorder=order))
            case Text(x, y, words, middle, fill):
                look = {"ha": "center" if middle else "left", "va": "baseline", "color": fill}
                words = printable(words).replace("$", r"\$")  # which begins a formula
                axes.text(x, y, words, fontsize=points, zorder=order, **look)
    return Plot(figure)
