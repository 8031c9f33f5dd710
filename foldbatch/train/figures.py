"""Figures of a training: found by name, compared, drawn; mistakes on trees, drawn as trees."""

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

from foldbatch.errors import BackendError, TrainingError, UnknownNameError, with_nearest
from foldbatch.system.extras import install
from foldbatch.trees import Tree

Mode = Literal["min", "max"]
MODES: dict[Mode, tuple[str, ...]] = {  # by what is part of a figure's name
    "min": ("loss", "error", "mse", "mae", "perplexity"),
    "max": ("accuracy", "f1", "top_"),
}


def flattened(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures with those by class on their own; what is no single number or text is left out.

    >>> flattened({"loss": 0.5, "train_f1": {"bad": 1.0, "good": 0.5}, "confusion": [[1, 0], [0, 1]]})
    {'loss': 0.5, 'train_f1/bad': 1.0, 'train_f1/good': 0.5}
    """
    flat: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}/{key}": entry for key, entry in flattened(value).items()}
        elif isinstance(value, int | float | str):
            flat[name] = value
    return flat


def figure_of(where: str, figures: Mapping[str, Any], name: str) -> float:
    """Return a figure by name; one by class is named ``FIGURE/CLASS``.

    >>> figure_of("EarlyStopping", {"validation_f1": {"good": 0.5}}, "validation_f1/good")
    0.5
    """
    flat = flattened(figures)
    now = f"validation_{name.removeprefix('dev_')}"
    if name.startswith("dev_") and name not in flat and now in flat:
        warnings.warn(f"{where}: the figure {name} is called {now} now", DeprecationWarning, stacklevel=2)
        name = now
    if not isinstance(flat.get(name), int | float):
        fix = "figures that begin with validation_ need fit(examples, validation)"
        raise UnknownNameError(where, f"a figure of {', '.join(flat)}", with_nearest(name, flat), fix)
    return float(flat[name])


def check_mode(where: str, mode: str) -> None:
    """Raise `TrainingError` for a mode other than ``min`` and ``max``."""
    if mode not in ("min", "max"):
        raise TrainingError(where, "'min' or 'max'", repr(mode), "'min' is for losses, 'max' for accuracies")


def mode_of(figure: str) -> Mode:
    """Return whether lower or higher is better, as the name of a figure says.

    >>> mode_of("validation_accuracy"), mode_of("validation_loss")
    ('max', 'min')
    """
    modes = [mode for mode, parts in MODES.items() if any(part in str(figure) for part in parts)]
    if len(modes) != 1:
        expected = f"a name with one of {', '.join(part for parts in MODES.values() for part in parts)}"
        raise TrainingError("Checkpoints best", expected, repr(figure), "or give mode='min' or mode='max'")
    return modes[0]


def is_better(value: float, best: float | None, mode: str, margin: float = 0.0) -> bool:
    """Return whether a figure is better than the best one by more than a margin; NaN never is.

    >>> is_better(0.5, None, "min"), is_better(0.5, 0.55, "min", 0.1), is_better(0.7, 0.5, "max", 0.1)
    (True, False, True)
    """
    if math.isnan(value):
        return False
    return best is None or (value < best - margin if mode == "min" else value > best + margin)


def imported(module: str, extra: str, where: str) -> Any:
    """Return a module of an optional library.

    >>> imported("json", "plot", "here").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        library, fix = module.partition(".")[0], install(extra)
        raise BackendError(where, f"{library} to be installed", str(error), fix) from None


LEFT_OUT = ("epoch", "seconds", "lr", "norms", "gradient_norms")
NUMBERED = 12  # up to so many classes, a confusion matrix has its counts written in
Drawing = Any  # matplotlib.figure.Figure


def plot_history(history: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> Drawing:
    """Draw the figures of all epochs, and return matplotlib's figure.

    ``loss``, ``validation_loss`` and ``validation_averaged_loss`` share a drawing, and so do other figures of
    one name. Matrices, norms, seconds and the learning rate are left out.

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
        title = name.removeprefix("validation_").removeprefix("averaged_").partition("/")[0]
        groups.setdefault(title, []).append(name)
    if not groups:
        raise TrainingError("plot_history", "the figures of one epoch or more", "none", "call fit first")
    figure, axes = _drawing(len(groups))
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
) -> Drawing:
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
    figure, (ax,) = _drawing(1)
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


def _drawing(drawings: int) -> tuple[Drawing, list[Any]]:
    library = imported("matplotlib.figure", "plot", "plots")
    figure = library.Figure(figsize=(5.2 * drawings, 4.0), layout="constrained")
    return figure, list(figure.subplots(1, drawings, squeeze=False)[0])


Answers = int | str | Sequence[int | str | None]


def draw_errors(
    trees: Sequence[Tree],
    answers: Sequence[Answers],
    path: str | os.PathLike[str] | None = None,
    *,
    most: int = 20,
) -> str:
    """Return drawings of the trees that were answered wrong, and write them to `path` if there is one.

    A wrong node is drawn as ``answer, not label``, a right one by its label. A node without a label is not
    judged.

    Args:
        trees: labelled as the answers are, by numbers or texts.
        answers: for each tree, that for its root, or one for each node, children first as in ``tree.labels``;
            None where a node has no answer.
        path: of a text file, which is replaced.
        most: so many trees are drawn; the others are counted.

    Raises:
        TrainingError: when there is another number of answers than of trees, or of nodes.

    >>> import foldbatch as fb
    >>> trees = fb.trees.parse_brackets("(1 (0 not) (0 bad))"), fb.trees.parse_brackets("(1 fine)")
    >>> print(draw_errors(trees, [["0", "0", "0"], "1"]))
    1 of 2 trees have a wrong answer
    <BLANKLINE>
    tree 0
    0, not 1
    ├─ 0 not
    └─ 0 bad
    """
    if len(trees) != len(answers):
        raise TrainingError("draw_errors", f"{len(trees)} answers", str(len(answers)), "one a tree")
    wrong = [(number, marked) for number in range(len(trees)) if (marked := _marked(number, trees, answers))]
    drawn = [f"tree {number}\n{tree.draw()}" for number, tree in wrong[:most]]
    parts = [f"{len(wrong)} of {len(trees)} trees have a wrong answer", *drawn]
    if len(wrong) > most:
        parts.append(f"and {len(wrong) - most} more")
    text = "\n\n".join(parts)
    if path is not None:
        Path(path).write_text(f"{text}\n", encoding="utf-8")
    return text


def _marked(number: int, trees: Sequence[Tree], answers: Sequence[Answers]) -> Tree | None:
    tree, answer = trees[number], answers[number]
    by_node = [*[None] * (tree.size - 1), answer] if isinstance(answer, int | str) else list(answer)
    if len(by_node) != tree.size:
        found = f"{len(by_node)} for tree {number}"
        raise TrainingError("draw_errors", f"{tree.size} answers, one a node", found, "or one for the root")
    wrong = [
        given is not None and label is not None and str(given) != str(label)
        for given, label in zip(by_node, tree.labels, strict=True)
    ]
    if not any(wrong):
        return None
    labels = [
        f"{given}, not {label}" if bad else label
        for bad, given, label in zip(wrong, by_node, tree.labels, strict=True)
    ]
    return Tree(tree.parents, labels, tree.tokens)
