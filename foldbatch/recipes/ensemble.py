"""Several seeds: mean and deviation of their figures, and the figures of all models together."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foldbatch.params import Array
from foldbatch.program import Program
from foldbatch.recipes.predicting import BATCH, answers, scores
from foldbatch.train import SGD, Accuracy, Metric, Trainer
from foldbatch.trees.node import TreeNode

Figures = dict[str, Any]


def mean_and_deviation(figures: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return mean and deviation of each figure that all runs have; the deviation of one run is 0.

    >>> mean_and_deviation([{"accuracy": 0.5}, {"accuracy": 0.7}])
    {'accuracy': {'mean': 0.6, 'deviation': 0.14142135623730948}}
    """
    names = [name for name, value in figures[0].items() if isinstance(value, int | float)]
    found = {}
    for name in names:
        values = [float(run[name]) for run in figures]
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        found[name] = {"mean": statistics.fmean(values), "deviation": deviation}
    return found


def evaluate(programs: Sequence[Program], examples: Sequence[Any], metrics: Sequence[Metric]) -> Figures:
    """Return the figures of a model, or of several models whose answers are averaged.

    Of several there is ``vote_accuracy``, too: that of the class which most models name, and of those with
    equal votes the one with the higher mean probability.

    Args:
        programs: the models. The ``loss`` per example is told of a single one only.
        examples: with labels; those without are not counted.
        metrics: that `foldbatch.recipes.steering.metrics_of` returned.

    Raises:
        ExampleError: when an example does not fit the models.
    """
    if len(programs) == 1:
        return Trainer(programs[0], SGD(), metrics=metrics).evaluate(examples)
    labels: dict[str, list[Any]] = {}
    totals: dict[str, Array] = {}
    votes: Array | float = 0.0
    for program in programs:
        labels, values = _collected(program, examples)
        totals = {name: totals.get(name, 0) + answers(rows) / len(programs) for name, rows in values.items()}
        votes = votes + _votes(values["root"])
    figures = {m.name: m.compute(scores(totals[m.of]), labels[m.of]) for m in metrics}
    if "accuracy" in figures:
        figures["vote_accuracy"] = Accuracy("root").compute(votes + totals["root"], labels["root"])
    return figures


def label_of(example: Any) -> Any:
    """Return the label of an example: of a labelled tree, that of its root."""
    return example.label if isinstance(example, TreeNode) else example[1]


def _votes(values: Array) -> Array | float:
    """Return 1 for the best class of each row ``[n, classes]``, else 0; nothing for numbers."""
    return np.eye(values.shape[1])[values.argmax(axis=1)] if values.ndim == 2 else 0.0


def _collected(program: Program, examples: Sequence[Any]) -> tuple[dict[str, list[Any]], dict[str, Array]]:
    """Return labels and values of each `foldbatch.Metric` block."""
    labels: dict[str, list[Any]] = {}
    parts: dict[str, list[Array]] = {}
    for first in range(0, len(examples), BATCH):
        for name, metric in program.run(examples[first : first + BATCH], metrics=True).metrics.items():
            labels.setdefault(name, []).extend(metric.labels or ())
            parts.setdefault(name, []).append(metric.values)
    return labels, {name: np.concatenate(values) for name, values in parts.items()}
