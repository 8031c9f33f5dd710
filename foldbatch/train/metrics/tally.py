"""Tally: losses and metric values of one batch after the other, and the figures of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foldbatch.engines.results import MetricValues, Results
from foldbatch.params import Array
from foldbatch.train.metrics.metric import Metric

# the summed loss, how many examples, and for each metric its arrays of values, and its labels
Parts = tuple[float, int, list[list[Array]], list[list[Any]]]


class Tally:
    """Collects losses and metric values of batches, and makes figures of them.

    Args:
        metrics: whose figures are wanted.
    """

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics
        self._values: list[list[Array]] = [[] for _ in metrics]
        self._labels: list[list[Any]] = [[] for _ in metrics]
        self._loss = 0.0
        self._count = 0

    def add(self, results: Results, count: int) -> None:
        """Add a batch of so many examples.

        Raises:
            UnknownNameError: when no `foldbatch.Metric` block has the name that a metric asks for.
        """
        self._loss += results.loss
        self._count += count
        for metric, values, labels in zip(self._metrics, self._values, self._labels, strict=True):
            collected = results.metrics[metric.of]
            if metric.every == "example":
                collected = _last(collected)
            values.append(collected.values)
            labels.extend(collected.labels or ())

    def parts(self) -> Parts:
        """Return all that was added, as plain data and arrays."""
        return float(self._loss), self._count, self._values, self._labels

    def join(self, parts: Sequence[Parts]) -> None:
        """Hold what several tallies have, one after the other, in place of what was added."""
        self._loss = sum((loss for loss, *_ in parts), 0.0)
        self._count = sum(count for _, count, *_ in parts)
        for k in range(len(self._metrics)):
            self._values[k] = [array for _, _, values, _ in parts for array in values[k]]
            self._labels[k] = [label for *_, labels in parts for label in labels[k]]

    @property
    def count(self) -> int:
        """How many examples were added."""
        return self._count

    def figures(self) -> dict[str, Any]:
        """Return the loss per example, and the figure of each metric by name."""
        figures: dict[str, Any] = {"loss": float(self._loss) / max(self._count, 1)}
        for metric, values, labels in zip(self._metrics, self._values, self._labels, strict=True):
            figures[metric.name] = metric.compute(
                np.concatenate(values) if values else np.zeros((0, 1)), labels
            )
        return figures


def _last(collected: MetricValues) -> MetricValues:
    """Return the last value of each example that has one; values lie example by example."""
    examples = collected.examples
    places = np.flatnonzero(np.append(examples[1:] != examples[:-1], [True] * (len(examples) > 0)))
    labels = None if collected.labels is None else [collected.labels[place] for place in places]
    return MetricValues(collected.values[places], examples[places], collected.nodes[places], labels)
