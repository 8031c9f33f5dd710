"""Several seeds: mean and deviation of their figures, and the figures of all models together."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.program import Program
from foldbatch.recipes.predicting import BATCH, probabilities
from foldbatch.trees.node import TreeNode


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


def ensemble_figures(programs: Sequence[Program], examples: Sequence[Any], kind: str) -> dict[str, float]:
    """Return the figure of the mean of all models' answers: ``accuracy`` of classes, else ``mse``.

    Args:
        programs: the models.
        examples: with labels; those without are not counted.
        kind: the task's.
    """
    labelled = [example for example in examples if label_of(example) not in (None, *_no_class(kind))]
    labels = np.array([label_of(example) for example in labelled])
    if not labelled:
        return {}
    told = np.mean([_answers(program, labelled, kind) for program in programs], axis=0)
    if kind == "number":
        return {"mse": float(np.mean((told - labels) ** 2))}
    return {"accuracy": float(np.mean(told.argmax(axis=1) == labels))}


def label_of(example: Any) -> Any:
    """Return the label of an example: of a labelled tree, that of its root."""
    return example.label if isinstance(example, TreeNode) else example[1]


def _no_class(kind: str) -> tuple[int, ...]:
    return () if kind == "number" else (-1,)


def _answers(program: Program, examples: Sequence[Any], kind: str) -> NDArray[np.float64]:
    parts = (program.run(examples[i : i + BATCH]) for i in range(0, len(examples), BATCH))
    results = np.array([np.asarray(result) for part in parts for result in part], np.float64)
    return results if kind == "number" else probabilities(results)
