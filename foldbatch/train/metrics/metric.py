"""Metric: what every figure of collected values has, and the checks that figures share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import TrainingError
from foldbatch.params import Array
from foldbatch.types import describe_value

EVERY = ("value", "example")
Labels = Sequence[Any]


class Metric(Protocol):
    """A figure of one `foldbatch.Metric` block's values.

    Attributes:
        name: under which the figure is shown.
        of: the name of the block.
        every: ``"value"`` counts each value that the block collected, so each node of a tree. ``"example"``
            counts the last value of each example. That is the root's, where the block takes what is computed
            from the children; see the order of visits at `foldbatch.Metric`.
    """

    name: str
    of: str
    every: str

    def compute(self, values: Array, labels: Labels) -> Any:
        """Return the figure of all values ``[m, ...]`` and their labels: a number, or plain data."""
        ...


class Base:
    """What the metrics of the package share: their names, and which values they count.

    Args:
        of: the name of the `foldbatch.Metric` block, which takes a pair of tensor and label.
        name: of the figure.
        every: ``"value"`` or ``"example"``; see `Metric`.

    Raises:
        TrainingError: when `every` is neither.
    """

    def __init__(self, of: str, name: str, every: str) -> None:
        if every not in EVERY:
            fix = "'example' counts the last value of each example, in a tree the root's"
            raise TrainingError(f"{type(self).__name__} every", "'value' or 'example'", repr(every), fix)
        self.of = of
        self.name = name
        self.every = every

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.of!r}, name={self.name!r}, every={self.every!r})"


def labelled(where: str, values: Array, labels: Labels) -> tuple[Array, list[Any]]:
    """Return the values that have a label, and these labels; a label of None is no label.

    Raises:
        TrainingError: when there are not as many labels as values.

    >>> labelled("Accuracy", np.array([1, 2, 3]), [7, None, 9])
    (array([1, 3]), [7, 9])
    """
    if len(values) != len(labels):
        fix = "give its Metric block a pair: AllOf(tensor, label) >> Metric(name)"
        raise TrainingError(where, f"{len(values)} labels, one a value", str(len(labels)), fix)
    places = [place for place, label in enumerate(labels) if label is not None]
    return values[places], [labels[place] for place in places]


def classified(where: str, values: Array, labels: Labels) -> tuple[Array, NDArray[np.int64]]:
    """Return the values that have a label, a row of scores each, and these labels: numbers of columns.

    Raises:
        TrainingError: when a value is not a row of two scores or more, or a label no number of a column.
    """
    scores, kept = labelled(where, values, labels)
    if scores.ndim != 2 or (len(scores) and scores.shape[1] < 2):
        found = f"values of shape {list(scores.shape[1:])}"
        raise TrainingError(
            where, "a vector of two scores or more as each value", found, "give it the logits"
        )
    for label in kept:
        if not isinstance(label, int | np.integer) or not 0 <= label < scores.shape[1]:
            expected = f"labels from 0 to {scores.shape[1] - 1}, or None"
            raise TrainingError(where, expected, describe_value(label), "give the class's number")
    return scores, np.array(kept, np.int64)
