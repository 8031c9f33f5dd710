"""Tally: losses and metric values of one batch after the other, and the figures of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foldbatch.engines.results import MetricValues, Results
from foldbatch.params import Array
from foldbatch.train.metrics.metric import Metric


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
