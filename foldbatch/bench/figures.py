"""Figures of the benchmark by matplotlib, which is optional: made without a screen, in one style."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from foldbatch.errors import BackendError

Figure = Any  # matplotlib.figure.Figure
Axes = Any  # matplotlib.axes.Axes


def new_figure(rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Return an empty figure, and its axes row by row.

    Raises:
        BackendError: when matplotlib is not installed.
    """
    try:
        module = import_module("matplotlib.figure")
    except ImportError as error:
        fix = "pip install matplotlib, or leave the figure out"
        raise BackendError("figure", "matplotlib to be installed", str(error), fix) from None
    figure = module.Figure(figsize=(6.4 * columns, 4.4 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False).reshape(-1).tolist()


def log_axes(axes: Axes, x: str, y_label: str, *, y: bool = True) -> None:
    """Label axes, count x (and y) in powers, and tell lines apart by a legend."""
    axes.set_xscale("log")
    if y:
        axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
