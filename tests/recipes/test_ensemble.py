"""Means and deviations over seeds, and the answers of several models together."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.recipes.ensemble import ensemble_figures, label_of, mean_and_deviation


def shifted(*amounts):
    """Programs whose scores are the example's, plus an amount at the first."""
    rows = [np.array([amount, 0], "float32") for amount in amounts]
    return [
        fb.compile(fb.GetItem(0) >> fb.Vector(2) >> fb.Function(lambda x, row=row: x + row)) for row in rows
    ]


def test_mean_and_deviation_of_runs():
    found = mean_and_deviation([{"accuracy": 0.4, "epochs": [1]}, {"accuracy": 0.6, "epochs": []}])
    assert found == {"accuracy": {"mean": pytest.approx(0.5), "deviation": pytest.approx(0.02**0.5)}}
    assert mean_and_deviation([{"loss": 1}])["loss"] == {"mean": 1.0, "deviation": 0.0}


def test_probabilities_are_averaged():
    """Two of three models are wrong, but hardly; the third is sure."""
    programs = shifted(-0.1, -0.1, 9)
    examples = [([0.0, 0.0], 0), ([0.0, 0.0], None), ([0.0, 0.0], -1)]
    assert ensemble_figures(programs[:2], examples, "class") == {"accuracy": 0.0}
    assert ensemble_figures(programs, examples, "class") == {"accuracy": 1.0}
    assert ensemble_figures(programs, examples[1:], "class") == {}


def test_numbers_are_averaged():
    programs = [fb.compile(fb.GetItem(0) >> fb.Scalar() >> fb.Function(lambda x, f=f: x * f)) for f in (1, 3)]
    assert ensemble_figures(programs, [(1.0, 2.0), (2.0, 3.0)], "number") == {"mse": 0.5}


def test_the_label_of_an_example():
    assert label_of(fb.trees.Tree.leaf(3, "x")) == 3 and label_of(("x", 4)) == 4
