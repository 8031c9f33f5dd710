"""Figures of numbers: equal to plain loops and to scikit-learn's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from foldbatch.errors import TrainingError
from foldbatch.train.metrics import MeanAbsoluteError, MeanSquaredError, Perplexity

rng = np.random.default_rng(1)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_errors_are_scikit_learns(shape):
    sklearn = pytest.importorskip("sklearn.metrics", reason="needs scikit-learn")
    values, labels = rng.normal(size=(2, 9, *shape))
    given = [None, *labels[1:].tolist()]
    assert MeanSquaredError("x").compute(values, given) == pytest.approx(
        sklearn.mean_squared_error(labels[1:], values[1:])
    )
    assert MeanAbsoluteError("x").compute(values, given) == pytest.approx(
        sklearn.mean_absolute_error(labels[1:], values[1:])
    )


def test_perplexity_equals_a_plain_loop_on_logits_and_on_log_probabilities():
    logits, labels = rng.normal(size=(6, 4)), [0, 1, None, 3, 2, 1]
    log_probabilities = [[x - math.log(sum(map(math.exp, row))) for x in row] for row in logits.tolist()]
    own = [row[label] for row, label in zip(log_probabilities, labels, strict=True) if label is not None]
    expected = math.exp(-sum(own) / len(own))
    assert Perplexity("x").compute(logits, labels) == pytest.approx(expected)
    assert Perplexity("x").compute(np.array(log_probabilities), labels) == pytest.approx(expected)
    assert Perplexity("x").compute(np.array([[0.0, 5000.0]], "float32"), [0]) == math.inf


def test_no_values_have_no_figure():
    for kind in (MeanSquaredError, MeanAbsoluteError):
        assert math.isnan(kind("x").compute(np.zeros(2), [None, None]))
    assert math.isnan(Perplexity("x").compute(np.zeros((0, 2)), []))


@pytest.mark.parametrize("labels", [[1, [1, 2]], [[1, 2], [1, 2]], ["a", "b"]])
def test_labels_of_another_shape_are_refused(labels):
    with pytest.raises(TrainingError, match=r"MeanSquaredError: expected labels of shape \[\]"):
        MeanSquaredError("x").compute(np.zeros(2), labels)
