"""Pictures of outcomes, drawn by matplotlib: whether one can be drawn, an empty one, and writing it."""

from __future__ import annotations

from argparse import ArgumentTypeError
from importlib.util import find_spec
from pathlib import Path

from foldbatch.bench.case import Figure
from foldbatch.bench.options import output_file

SUFFIXES = (".png", ".svg")
COLOURS = (
    "#4d8ce5",
    "#e5584d",
    "#3fa66b",
    "#d99a2b",
    "#8e6bd1",
    "#5aa9b8",
    "#b05c8b",
    "#77808a",
    "#7a5230",
    "#222222",
)


def plot_file(text: str) -> Path:
    """Read the name of a picture to write; refused unless it can be drawn."""
    path = output_file(text)
    if path.suffix.lower() not in SUFFIXES:
        raise ArgumentTypeError(f"expected a name that ends in .png or .svg, found {text}")
    if not installed():
        fix = "pip install 'foldbatch[plot]'"
        raise ArgumentTypeError(f"expected matplotlib to be installed, found no module of that name; {fix}")
    return path


def installed() -> bool:
    """Return whether matplotlib is."""
    try:
        return find_spec("matplotlib") is not None
    except ValueError:  # it has been put out of reach
        return False


def new_figure(columns: float, rows: float) -> Figure:
    """Return an empty figure with room for that many panels side by side, and one above the other."""
    from matplotlib.figure import Figure as MatplotlibFigure  # noqa: PLC0415 - optional

    return MatplotlibFigure(figsize=(5.2 * columns, 3.8 * rows), layout="constrained")


def write(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or SVG, by the name's suffix."""
    figure.savefig(path, dpi=150)
