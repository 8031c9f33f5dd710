"""Metrics: figures of the values that `foldbatch.Metric` blocks collect, over whole data sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from foldbatch.engines.results import Metrics, MetricValues, Results
from foldbatch.params import Array


class Metric(Protocol):
    """A figure of one `foldbatch.Metric` block's values.

    Attributes:
        name: under which the figure is shown.
        of: the name of the block.
    """

    name: str
    of: str

    def compute(self, values: Array, labels: Sequence[Any]) -> Any:
        """Return the figure of all values ``[m, ...]`` and their labels."""
        ...


class Accuracy:
    """The share of values whose greatest entry is at their label.

    Shapes: values ``[m, classes]``, labels ``m`` whole numbers.

    Args:
        of: the name of the `foldbatch.Metric` block.
        name: of the figure.

    >>> Accuracy("root").compute(np.array([[0.1, 0.9], [0.8, 0.2]]), [1, 1])
    0.5
    """

    def __init__(self, of: str, name: str = "accuracy") -> None:
        self.of = of
        self.name = name

    def compute(self, values: Array, labels: Sequence[Any]) -> float:
        """Return the share, or NaN of no values."""
        return float(np.mean(values.argmax(axis=1) == np.asarray(labels))) if len(values) else float("nan")


class Tally:
    """Collects losses and metric values of batches, and makes figures of them."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics
        self._parts: list[Metrics] = []
        self._loss = 0.0
        self._count = 0

    def add(self, results: Results, count: int) -> None:
        """Add a batch of so many examples."""
        self._loss += results.loss
        self._count += count
        if self._metrics:
            self._parts.append(results.metrics)

    def figures(self) -> dict[str, Any]:
        """Return the loss per example, and the figure of each metric by name."""
        figures: dict[str, Any] = {"loss": float(self._loss) / max(self._count, 1)}
        for metric in self._metrics:
            collected: list[MetricValues] = [part[metric.of] for part in self._parts]
            values = np.concatenate([part.values for part in collected]) if collected else np.zeros((0, 1))
            labels = [label for part in collected for label in part.labels or ()]
            figures[metric.name] = metric.compute(values, labels)
        return figures
