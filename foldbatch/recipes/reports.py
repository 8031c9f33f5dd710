"""Reports: what a confusion matrix says of each class, as data and as a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

HEADS = ("examples", "precision", "recall", "f1")


def class_figures(confusion: Sequence[Sequence[int]], classes: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return how many examples each class has, and precision, recall and F1 of it.

    Args:
        confusion: counts ``[classes, classes]``: a row for each label, a column for each answer.
        classes: their names.

    >>> class_figures([[3, 1], [0, 0]], ["bad", "good"])["bad"]
    {'examples': 4, 'precision': 1.0, 'recall': 0.75, 'f1': 0.8571428571428571}
    """
    counts = np.array(confusion)
    right, labels, answers = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    columns = (
        labels.tolist(),
        (right / np.maximum(answers, 1)).tolist(),
        (right / np.maximum(labels, 1)).tolist(),
        (2 * right / np.maximum(labels + answers, 1)).tolist(),
    )
    rows = zip(*columns, strict=True)
    return {name: dict(zip(HEADS, row, strict=True)) for name, row in zip(classes, rows, strict=True)}


def class_table(confusion: Sequence[Sequence[int]], classes: Sequence[str]) -> str:
    """Return figures and confusion of classes as text: a line for each label, its answers in columns.

    >>> print(class_table([[3, 1], [0, 2]], ["bad", "good"]))
            examples  precision  recall     f1  answered  1  2
    1 bad          4      1.000   0.750  0.857            3  1
    2 good         2      0.667   1.000  0.800            0  2
    """
    names = [f"{number} {name}" for number, name in enumerate(classes, 1)]
    first = max(map(len, names))
    width = max(len(str(max(map(max, confusion)))), len(str(len(classes))))
    numbers = "".join(f"  {number:{width}}" for number in range(1, len(classes) + 1))
    lines = [f"{'':{first}}  examples  precision  recall     f1  answered{numbers}"]
    for name, row, figures in zip(names, confusion, class_figures(confusion, classes).values(), strict=True):
        examples, precision, recall, f1 = figures.values()
        shares = f"{precision:9.3f}  {recall:6.3f}  {f1:5.3f}"
        counts = "".join(f"  {count:{width}}" for count in row)
        lines.append(f"{name:{first}}  {examples:8}  {shares}{'':10}{counts}")
    return "\n".join(lines)
