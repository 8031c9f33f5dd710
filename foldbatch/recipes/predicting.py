"""Predictions: what models, one or several seeds of it, tell of structures, and how well they do."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foldbatch.params.parameters import Array
from foldbatch.program.predicting import BATCH, answers, scores
from foldbatch.program.program import Program
from foldbatch.train import SGD, Accuracy, Metric, Trainer
from foldbatch.trees.tree import TreeNode, trusted_tree


def drawing(structure: Any, told: Mapping[str, Any], levels: int = 12, nodes: int = 40) -> str:
    """Return a prediction as text: above the tree, or in each node of it where all are told."""
    if "nodes" in told:
        labels = [f"{node['label']} {node['probability']:.0%}" for node in told["nodes"]]
        tree = structure.tree
        return trusted_tree(tree.parents, labels, tree.tokens).draw(levels, nodes)
    if "result" in told:
        head = str(told["result"])
    elif "number" in told:
        head = f"{told['number']:g}"
    else:
        head = f"{told['label']} {told['probabilities'][told['label']]:.0%}"
    shown = structure.draw(levels, nodes) if isinstance(structure, TreeNode) else str(structure)
    return f"{head}\n{shown}"


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
    labels: dict[str, list[Any]] = {}
    parts: dict[str, list[Array]] = {}
    for first in range(0, len(examples), BATCH):
        for name, metric in program.run(examples[first : first + BATCH], metrics=True).metrics.items():
            labels.setdefault(name, []).extend(metric.labels or ())
            parts.setdefault(name, []).append(metric.values)
    return labels, {name: np.concatenate(values) for name, values in parts.items()}


HEADS = ("examples", "precision", "recall", "f1")


def class_figures(confusion: Sequence[Sequence[int]], classes: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return how many examples each class has, and precision, recall and F1 of it.

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
