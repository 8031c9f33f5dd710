"""Pictures of a training, drawn by matplotlib: curves of figures over epochs, and confusion of classes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foldbatch.errors import TrainingError
from foldbatch.train.callbacks.extras import imported
from foldbatch.train.callbacks.figures import flattened

LEFT_OUT = ("epoch", "seconds", "lr", "norms", "gradient_norms")
NUMBERED = 12  # up to so many classes, a confusion matrix has its counts written in
Figure = Any  # matplotlib.figure.Figure


def plot_history(history: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> Figure:
    """Draw the figures of all epochs, and return matplotlib's figure.

    ``loss``, ``dev_loss`` and ``dev_averaged_loss`` share a drawing, and so do other figures of one name.
    Matrices, norms, seconds and the learning rate are left out.

    Args:
        history: what `foldbatch.train.Trainer.fit` returns.
        path: of a file to write, whose ending says the format, such as ``.png`` or ``.svg``.

    Raises:
        BackendError: when matplotlib is not installed.
        TrainingError: when there is no epoch.
    """
    rows = [flattened({k: v for k, v in row.items() if k not in LEFT_OUT}) for row in history]
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for row in rows for name in row if not isinstance(row[name], str)):
        groups.setdefault(_plain(name).partition("/")[0], []).append(name)
    if not groups:
        raise TrainingError("plot_history", "the figures of one epoch or more", "none", "call fit first")
    figure, axes = _figure(len(groups))
    for (title, names), ax in zip(groups.items(), axes, strict=True):
        for name in names:
            points = [
                (epoch["epoch"], row[name]) for epoch, row in zip(history, rows, strict=True) if name in row
            ]
            ax.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
        ax.set(title=title, xlabel="epoch")
        ax.grid(alpha=0.3)
        ax.legend(fontsize="small")
    figure.savefig(path)
    return figure


def plot_confusion(
    matrix: Sequence[Sequence[int]], names: Sequence[str] | None, path: str | os.PathLike[str]
) -> Figure:
    """Draw how often each class was taken for which, and return matplotlib's figure.

    Args:
        matrix: counts ``[classes, classes]``: a row for each label, a column for each answer, as
            `foldbatch.train.Confusion` makes them. Colours are shares of a row.
        names: of the classes; None numbers them.
        path: of a file to write, whose ending says the format, such as ``.png`` or ``.svg``.

    Raises:
        BackendError: when matplotlib is not installed.
        TrainingError: when the matrix is not square, or there is another number of names.
    """
    counts = np.asarray(matrix)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1]:
        raise TrainingError("plot_confusion", "a square matrix", f"shape {counts.shape}", "see Confusion")
    names = [str(number) for number in range(len(counts))] if names is None else list(names)
    if len(names) != len(counts):
        raise TrainingError("plot_confusion names", f"{len(counts)} names", str(len(names)), "one a class")
    figure, (ax,) = _figure(1)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    ax.set(xlabel="answer", ylabel="label")
    ax.set_xticks(range(len(names)), names, rotation=45, ha="right")
    ax.set_yticks(range(len(names)), names)
    if len(names) <= NUMBERED:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if shares[row, column] > 0.5 else "black"
            ax.text(column, row, str(count), ha="center", va="center", color=colour, fontsize="small")
    figure.savefig(path)
    return figure


def _figure(drawings: int) -> tuple[Figure, list[Any]]:
    """Return an empty figure with a row of axes."""
    library = imported("matplotlib.figure", "plot", "plots")
    figure = library.Figure(figsize=(5.2 * drawings, 4.0), layout="constrained")
    return figure, list(figure.subplots(1, drawings, squeeze=False)[0])


def _plain(name: str) -> str:
    """Return the name of a figure without the set that it is of.

    >>> _plain("dev_averaged_accuracy"), _plain("dev_loss")
    ('accuracy', 'loss')
    """
    return name.removeprefix("dev_").removeprefix("averaged_")
