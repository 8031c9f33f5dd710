"""Pictures of outcomes, drawn by matplotlib: whether one can be drawn, an empty one, and writing it."""

from __future__ import annotations

from argparse import ArgumentTypeError
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

from benchmarks.case import Figure as Figure
from foldbatch.errors import BackendError
from foldbatch.system.files import output_file, write_whole

Axes = Any  # matplotlib.axes.Axes

INSTALL = "pip install 'foldbatch[plot]'"
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
        raise ArgumentTypeError(
            f"expected matplotlib to be installed, found no module of that name; {INSTALL}"
        )
    return path


def installed() -> bool:
    """Return whether matplotlib is."""
    try:
        return find_spec("matplotlib") is not None
    except ValueError:  # it has been put out of reach
        return False


def new_figure(rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Return an empty figure, and its axes row by row.

    Raises:
        BackendError: when matplotlib is not installed.
    """
    try:
        module = import_module("matplotlib.figure")
    except ImportError as error:
        raise BackendError("figure", "matplotlib to be installed", str(error), INSTALL) from None
    figure = module.Figure(figsize=(6.4 * columns, 4.4 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False).reshape(-1).tolist()


def log_axes(axes: Axes, x_label: str, y_label: str) -> None:
    """Label both axes, make them logarithmic, and add a grid and a legend."""
    axes.set(xscale="log", yscale="log", xlabel=x_label, ylabel=y_label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def write(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or SVG, by the name's suffix."""
    picture = BytesIO()
    figure.savefig(picture, format=path.suffix[1:].lower(), dpi=150)
    write_whole(path, picture.getvalue())
