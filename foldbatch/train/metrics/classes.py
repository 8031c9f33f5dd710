"""Figures of classes: how often the right one is chosen, and which one is taken for which."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import TrainingError
from foldbatch.params import Array
from foldbatch.train.metrics.metric import Base, Labels, classified

AVERAGES = ("macro", "micro", None)


class Accuracy(Base):
    """The share of values whose greatest score is at their label.

    Shapes: values ``[m, classes]``, labels ``m`` whole numbers. A value whose label is None is not counted.

    Args:
        of: the name of the `foldbatch.Metric` block.
        name: of the figure.
        every: ``"value"``, or ``"example"`` for the last value of each example.

    Raises:
        TrainingError: when `every` is neither; by `compute`, when values or labels do not fit.

    >>> Accuracy("root").compute(np.array([[0.1, 0.9], [0.8, 0.2], [1.0, 0.0]]), [1, 1, None])
    0.5
    """

    def __init__(self, of: str, name: str = "accuracy", *, every: str = "value") -> None:
        super().__init__(of, name, every)

    def compute(self, values: Array, labels: Labels) -> float:
        """Return the share, or NaN of no values."""
        scores, numbers = classified("Accuracy", values, labels)
        return float(np.mean(scores.argmax(axis=1) == numbers)) if len(numbers) else math.nan


class TopK(Base):
    """The share of values whose label is among the `k` greatest scores; of equal scores, all count.

    Shapes: values ``[m, classes]``, labels ``m`` whole numbers. A value whose label is None is not counted.

    Args:
        of: the name of the `foldbatch.Metric` block.
        k: how many scores count, at least 1.
        name: of the figure; by default ``top_K``.
        every: ``"value"``, or ``"example"`` for the last value of each example.

    Raises:
        TrainingError: when `k` or `every` is out of range; by `compute`, when values or labels do not fit.

    >>> TopK("root", 2).compute(np.array([[0.1, 0.9, 0.2], [0.8, 0.1, 0.2]]), [2, 1])
    0.5
    """

    def __init__(self, of: str, k: int = 5, name: str | None = None, *, every: str = "value") -> None:
        if k < 1:
            raise TrainingError("TopK k", "a whole number of 1 or more", repr(k), "for example 5")
        super().__init__(of, f"top_{k}" if name is None else name, every)
        self.k = k

    def compute(self, values: Array, labels: Labels) -> float:
        """Return the share, or NaN of no values."""
        scores, numbers = classified("TopK", values, labels)
        if not len(numbers):
            return math.nan
        own = np.take_along_axis(scores, numbers[:, None], axis=1)
        return float(np.mean((scores > own).sum(axis=1) < self.k))


class Confusion(Base):
    """How often each class is taken for which: row = label, column = the class of the greatest score.

    Shapes: values ``[m, classes]``, labels ``m`` whole numbers. A value whose label is None is not counted.

    Args:
        of: the name of the `foldbatch.Metric` block.
        name: of the figure.
        every: ``"value"``, or ``"example"`` for the last value of each example.

    Raises:
        TrainingError: when `every` is neither; by `compute`, when values or labels do not fit.

    >>> Confusion("root").compute(np.array([[0.1, 0.9], [0.8, 0.2], [0.7, 0.3]]), [1, 0, 1])
    [[1, 0], [1, 1]]
    """

    def __init__(self, of: str, name: str = "confusion", *, every: str = "value") -> None:
        super().__init__(of, name, every)

    def compute(self, values: Array, labels: Labels) -> list[list[int]]:
        """Return the counts, a list for each label."""
        table: list[list[int]] = _counts(*classified("Confusion", values, labels)).tolist()
        return table


class F1(Base):
    """The harmonic mean of precision and recall, of all classes or by class.

    Shapes: values ``[m, classes]``, labels ``m`` whole numbers. A value whose label is None is not counted.

    Args:
        of: the name of the `foldbatch.Metric` block.
        name: of the figure.
        average: ``"macro"``: the mean over the classes that are a label or an answer somewhere. ``"micro"``:
            from the counts of all classes together, which here is the accuracy. None: a dict by class.
        classes: the names of the classes, for `average` None; by default ``"0"``, ``"1"`` and so on.
        every: ``"value"``, or ``"example"`` for the last value of each example.

    Raises:
        TrainingError: when `average` or `every` is unknown; by `compute`, when values, labels or the number
            of classes do not fit.

    >>> scores = np.array([[0.1, 0.9], [0.8, 0.2], [0.7, 0.3]])
    >>> F1("root", average=None, classes=["bad", "good"]).compute(scores, [1, 0, 0])
    {'bad': 1.0, 'good': 1.0}
    >>> round(F1("root").compute(scores, [1, 0, 1]), 4)
    0.6667
    """

    def __init__(
        self,
        of: str,
        name: str = "f1",
        *,
        average: str | None = "macro",
        classes: Sequence[str] | None = None,
        every: str = "value",
    ) -> None:
        if average not in AVERAGES:
            raise TrainingError("F1 average", "'macro', 'micro' or None", repr(average), "None is by class")
        super().__init__(of, name, every)
        self.average = average
        self.classes = None if classes is None else list(classes)

    def compute(self, values: Array, labels: Labels) -> Any:
        """Return the figure, NaN of no values, or a dict of figures by class."""
        counts = _counts(*classified("F1", values, labels))
        right, sums = counts.diagonal(), counts.sum(axis=0) + counts.sum(axis=1)
        if self.average is None:
            names = [str(number) for number in range(len(right))] if self.classes is None else self.classes
            if len(names) != len(right):
                raise TrainingError("F1 classes", f"{len(right)} names", str(len(names)), "one a score")
            return dict(zip(names, (2 * right / np.maximum(sums, 1)).tolist(), strict=True))
        if not sums.any():
            return math.nan
        if self.average == "micro":
            return float(2 * right.sum() / sums.sum())
        return float(np.mean(2 * right[sums > 0] / sums[sums > 0]))


def _counts(scores: Array, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how often each label (row) gets each answer (column)."""
    classes = scores.shape[1]
    answers = scores.argmax(axis=1) if len(scores) else np.zeros(0, np.int64)
    return np.bincount(numbers * classes + answers, minlength=classes**2).reshape(classes, classes)
