"""Plots by matplotlib, of plain data: curves of a training, confusion, calibration, histograms.

matplotlib (the extra ``plot``) is imported when a plot is drawn; `BackendError` says where it is missing.
"""

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldbatch.errors import BackendError, BlockValueError, install
from foldbatch.system.files import write_whole

Figure: TypeAlias = Any  # matplotlib's types are not read
Axes: TypeAlias = Any
Axis: TypeAlias = Any

FORMATS = ("png", "svg", "pdf")
DOTS = 100  # of an inch, in pictures of pixels
INK, BLUE, RED, GREY = "#1b1f24", "#2f6fd0", "#c8382c", "#9aa4af"  # of what is drawn


class Plot:
    """A picture that a notebook shows by itself, and that `save` writes to a file.

    Attributes:
        figure: the figure of matplotlib, for what else you want to change.
    """

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, which is replaced; its ending says the format: png, svg or pdf.

        Raises:
            BlockValueError: when the path has another ending.
        """
        kind = Path(path).suffix.lower().removeprefix(".")
        if kind not in FORMATS:
            endings = " or ".join(f".{name}" for name in FORMATS)
            raise BlockValueError(
                "path", f"a name that ends in {endings}", repr(str(path)), "name the format"
            )
        write_whole(Path(path), self.content(kind))

    def content(self, kind: str) -> bytes:
        """Return the bytes of a file of a format of `FORMATS`."""
        file = io.BytesIO()
        metadata = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
        self.figure.savefig(file, format=kind, dpi=DOTS, metadata=metadata)
        return file.getvalue()

    def _repr_png_(self) -> bytes:
        return self.content("png")


def is_installed() -> bool:
    """Return whether there is matplotlib."""
    return find_spec("matplotlib") is not None


def sheet(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a new figure, of inches, with so many axes; it belongs to no window and to no list of figures.

    Raises:
        BackendError: when there is no matplotlib.
    """
    if not is_installed():
        raise BackendError("plot", "the library matplotlib", "none", install("plot"))
    figure = import_module("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    return figure, [axes for line in grid for axes in line]


def whole_ticks(axis: Axis) -> None:
    """Let an axis have ticks at whole numbers only."""
    axis.set_major_locator(import_module("matplotlib.ticker").MaxNLocator(integer=True))


AXES_IN_ROW = 3  # of a sheet with several curves


def curves(groups: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], across: str) -> Plot:
    """Return a sheet of curves: an axes for each group, in it a line of points (x, y) for each name.

    Args:
        groups: lines by name, by the title of their axes.
        across: the label of the x axis.
    """
    columns = min(AXES_IN_ROW, max(len(groups), 1))
    rows = -(-max(len(groups), 1) // columns)
    figure, sheets = sheet(4.2 * columns, 3.0 * rows, rows, columns)
    for axes in sheets[len(groups) :]:
        axes.set_axis_off()
    for axes, (title, lines) in zip(sheets, groups.items(), strict=False):
        for name, points in lines.items():
            xs, ys = zip(*points, strict=True)
            axes.plot(xs, ys, label=name, marker="o" if len(points) < 20 else "", markersize=3)
        axes.set_title(title)
        axes.set_xlabel(across)
        whole_ticks(axes.xaxis)
        axes.grid(alpha=0.3)
        if len(lines) > 1 or title not in lines:
            axes.legend()
    return Plot(figure)


def sweep(
    rates: Sequence[float], losses: Sequence[float], smoothed: Sequence[float], suggestion: float | None
) -> Plot:
    """Return the curves of losses and smoothed losses by rate, on a logarithmic axis, with a rate marked."""
    figure, (axes,) = sheet(5.0, 3.4)
    axes.plot(rates, losses, color=GREY, linewidth=1, label="loss")
    if len(smoothed) == len(rates):
        axes.plot(rates, smoothed, color=BLUE, label="smoothed")
    if suggestion is not None:
        axes.axvline(suggestion, color=RED, linestyle="--", label=f"suggested: {suggestion:.2g}")
    axes.set_xscale("log")
    axes.set_ylim(top=min(max(losses), 2 * max(smoothed, default=max(losses))) * 1.05)  # not of what diverges
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss of a batch")
    axes.grid(alpha=0.3)
    axes.legend()
    return Plot(figure)


MAX_NUMBERED = 20  # classes of a confusion whose counts are written into their squares


def confusion(table: ArrayLike, classes: Sequence[str]) -> Plot:
    """Return the picture of a confusion: a row for each label, a column for each answer, in shares of rows.

    Args:
        table: counts ``[classes, classes]``.
        classes: their names.
    """
    counts = np.asarray(table)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = 2.2 + 0.45 * min(len(classes), 40)
    figure, (axes,) = sheet(side + 0.8, side)
    drawn = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(drawn, ax=axes, label="share of the label", shrink=0.8)
    axes.set_xticks(range(len(classes)), classes, rotation=90 if max(map(len, classes)) > 3 else 0)
    axes.set_yticks(range(len(classes)), classes)
    axes.set_xlabel("answer")
    axes.set_ylabel("label")
    if len(classes) <= MAX_NUMBERED:
        for (row, column), count in np.ndenumerate(counts):
            paint = "white" if shares[row, column] > 0.5 else INK
            axes.text(column, row, f"{count}", ha="center", va="center", color=paint, fontsize=8)
    return Plot(figure)


def reliability(edges: ArrayLike, counts: ArrayLike, confidence: ArrayLike, shares: ArrayLike) -> Plot:
    """Return a reliability diagram: how often answers are right, by the probability that they were given.

    Args:
        edges: of the bins of probabilities, ``[bins + 1]``.
        counts: answers in each bin, ``[bins]``.
        confidence: mean probability in each bin; where it is empty, any number.
        shares: how many answers of each bin are right.
    """
    edges, counts, confidence, shares = map(np.asarray, (edges, counts, confidence, shares))
    figure, (above, below) = sheet(4.2, 5.0, 2)
    full = counts > 0
    widths = np.diff(edges)
    above.plot([0, 1], [0, 1], color=GREY, linestyle="--", label="calibrated")
    bars = {"align": "edge", "edgecolor": "white", "color": BLUE}
    above.bar(edges[:-1][full], shares[full], widths[full], label="right", **bars)
    above.plot(confidence[full], shares[full], "o", color=RED, markersize=4, label="mean probability")
    above.set_ylabel("share of right answers")
    above.set_ylim(0, 1)
    above.legend(loc="upper left")
    below.bar(edges[:-1], counts, widths, **bars)
    below.set_ylabel("answers")
    for axes in (above, below):
        axes.set_xlim(0, 1)
        axes.set_xlabel("probability of the answer")
    return Plot(figure)


def agreement(labels: ArrayLike, answers: ArrayLike) -> Plot:
    """Return a picture of numbers, a dot for each label and its answer; on the line they agree."""
    labels, answers = np.asarray(labels), np.asarray(answers)
    figure, (axes,) = sheet(4.2, 4.2)
    axes.scatter(labels, answers, s=8, alpha=0.5, color=BLUE)
    if labels.size:
        ends = [min(labels.min(), answers.min()), max(labels.max(), answers.max())]
        axes.plot(ends, ends, color=GREY, linestyle="--")
    axes.set_xlabel("label")
    axes.set_ylabel("answer")
    return Plot(figure)


def image_of(plot: Plot) -> NDArray[np.uint8]:
    """Return a plot's pixels, ``[height, width, 3] uint8``."""
    figure = plot.figure
    canvas = import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    figure.set_dpi(DOTS)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[:, :, :3]


def shown_points(rows: Iterable[tuple[float, object]]) -> list[tuple[float, float]]:
    """Return points (x, y) whose y is a number; NaN and infinity leave a gap.

    >>> shown_points([(1, 0.5), (2, float("inf")), (3, "text")])
    [(1, 0.5), (2, nan)]
    """
    numbers = [(x, float(y)) for x, y in rows if isinstance(y, int | float)]
    return [(x, y if np.isfinite(y) else float("nan")) for x, y in numbers]
