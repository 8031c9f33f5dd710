"""Means and deviations over seeds, and the answers of several models together."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.recipes.ensemble import evaluate, label_of, mean_and_deviation
from foldbatch.recipes.steering import metrics_of
from foldbatch.zoo import Task
from foldbatch.zoo.tasks import of_example


def shifted(*amounts):
    """Programs whose scores are the example's, plus an amount at the first."""
    rows = [np.array([amount, 0], "float32") for amount in amounts]
    shifts = [fb.Function(lambda x, row=row: x + row) for row in rows]
    return [fb.compile(of_example(fb.Vector(2), shift, Task(classes=2))) for shift in shifts]


def test_mean_and_deviation_of_runs():
    found = mean_and_deviation([{"accuracy": 0.4, "epochs": [1]}, {"accuracy": 0.6, "epochs": []}])
    assert found == {"accuracy": {"mean": pytest.approx(0.5), "deviation": pytest.approx(0.02**0.5)}}
    assert mean_and_deviation([{"loss": 1}])["loss"] == {"mean": 1.0, "deviation": 0.0}


def test_probabilities_are_averaged():
    """Two of three models are wrong, but hardly; the third is sure."""
    programs = shifted(-0.1, -0.1, 9)
    examples = [([0.0, 0.0], 0), ([0.0, 0.0], None), ([0.0, 0.0], -1)]
    metrics = metrics_of("class", ["confusion", "perplexity"])
    assert evaluate(programs[:2], examples, metrics)["accuracy"] == 0.0
    figures = evaluate(programs, examples, metrics)
    assert figures["accuracy"] == 1.0 and figures["confusion"] == [[1, 0], [0, 0]]
    assert figures["vote_accuracy"] == 0.0  # two votes against one
    assert evaluate(shifted(-0.1, 9), examples, metrics)["vote_accuracy"] == 1.0  # one each
    share = np.mean([1 / (1 + np.exp(-amount)) for amount in (-0.1, -0.1, 9)])
    assert figures["perplexity"] == pytest.approx(1 / share, rel=1e-5)
    assert np.isnan(evaluate(programs, examples[1:], metrics)["accuracy"])
    assert evaluate(programs[:1], examples, metrics)["loss"] > 0  # only a single model has a loss


def test_numbers_are_averaged():
    factors = [fb.Function(lambda x, f=f: x * f) for f in (1, 3)]
    programs = [fb.compile(of_example(fb.Scalar(), factor, Task("number", 0))) for factor in factors]
    figures = evaluate(programs, [(1.0, 2.0), (2.0, 3.0)], metrics_of("number", ["mae"]))
    assert figures == {"mse": 0.5, "mae": 0.5}


def test_the_label_of_an_example():
    assert label_of(fb.trees.Tree.leaf(3, "x")) == 3 and label_of(("x", 4)) == 4
