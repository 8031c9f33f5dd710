"""Figures of numbers: how far predicted ones are from right ones, and how likely what came was."""

from __future__ import annotations

import math

import numpy as np

from foldbatch.errors import TrainingError
from foldbatch.params import Array
from foldbatch.train.metrics.metric import Base, Labels, classified, labelled


class MeanSquaredError(Base):
    """The mean of squared differences between values and labels, over all entries.

    Shapes: values ``[m, *shape]``, labels ``m`` numbers or arrays of this shape. A value whose label is
    None is not counted.

    Args:
        of: the name of the `foldbatch.Metric` block.
        name: of the figure.
        every: ``"value"``, or ``"example"`` for the last value of each example.

    Raises:
        TrainingError: when `every` is neither; by `compute`, when labels do not fit the values.

    >>> MeanSquaredError("score").compute(np.array([1.0, 2.0]), [1, 4])
    2.0
    """

    def __init__(self, of: str, name: str = "mse", *, every: str = "value") -> None:
        super().__init__(of, name, every)

    def compute(self, values: Array, labels: Labels) -> float:
        """Return the mean, or NaN of no values."""
        return _mean(np.square(_differences("MeanSquaredError", values, labels)))


class MeanAbsoluteError(Base):
    """The mean distance between values and labels, over all entries.

    Shapes: values ``[m, *shape]``, labels ``m`` numbers or arrays of this shape. A value whose label is
    None is not counted.

    Args:
        of: the name of the `foldbatch.Metric` block.
        name: of the figure.
        every: ``"value"``, or ``"example"`` for the last value of each example.

    Raises:
        TrainingError: when `every` is neither; by `compute`, when labels do not fit the values.

    >>> MeanAbsoluteError("score").compute(np.array([1.0, 2.0]), [1, 4])
    1.0
    """

    def __init__(self, of: str, name: str = "mae", *, every: str = "value") -> None:
        super().__init__(of, name, every)

    def compute(self, values: Array, labels: Labels) -> float:
        """Return the mean, or NaN of no values."""
        return _mean(np.abs(_differences("MeanAbsoluteError", values, labels)))


class Perplexity(Base):
    """How many equally likely choices would be as hard to guess: exp of the mean of -log p(label).

    Shapes: values ``[m, classes]``, logits or log probabilities, and labels ``m`` whole numbers. A value
    whose label is None is not counted.

    Args:
        of: the name of the `foldbatch.Metric` block.
        name: of the figure.
        every: ``"value"``, or ``"example"`` for the last value of each example.

    Raises:
        TrainingError: when `every` is neither; by `compute`, when values or labels do not fit.

    >>> Perplexity("word").compute(np.zeros((3, 4)), [0, 3, 1])
    4.0
    """

    def __init__(self, of: str, name: str = "perplexity", *, every: str = "value") -> None:
        super().__init__(of, name, every)

    def compute(self, values: Array, labels: Labels) -> float:
        """Return the perplexity, or NaN of no values; infinity where it is too large for a float."""
        scores, numbers = classified("Perplexity", values, labels)
        if not len(numbers):
            return math.nan
        scores = scores.astype(np.float64)
        own = np.take_along_axis(scores, numbers[:, None], axis=1)[:, 0]
        # Log probabilities are logits, too: their log-sum-exp is 0.
        most = scores.max(axis=1)
        log_sums = most + np.log(np.exp(scores - most[:, None]).sum(axis=1))
        with np.errstate(over="ignore"):
            return float(np.exp(np.mean(log_sums - own)))


def _differences(where: str, values: Array, labels: Labels) -> Array:
    kept, right = labelled(where, values, labels)
    try:
        wanted = np.array(right, np.float64).reshape((len(right), *kept.shape[1:]))
    except (TypeError, ValueError) as error:
        expected = f"labels of shape {list(kept.shape[1:])}"
        raise TrainingError(where, expected, str(error), "give numbers, or None") from None
    return np.asarray(kept, np.float64) - wanted


def _mean(array: Array) -> float:
    return float(array.mean()) if array.size else math.nan
