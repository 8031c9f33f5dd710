"""What metrics share: which values have labels, and whether these fit."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.errors import TrainingError
from foldbatch.train.metrics import Accuracy, MeanSquaredError, labelled
from foldbatch.train.metrics.metric import classified


def test_values_without_a_label_are_left_out():
    values, labels = labelled("here", np.arange(8).reshape(4, 2), [None, 1, None, 0])
    assert (values.tolist(), labels) == ([[2, 3], [6, 7]], [1, 0])


def test_a_block_that_labels_nothing_is_named():
    with pytest.raises(TrainingError, match=r"MeanSquaredError: expected 2 labels, one a value, found 0"):
        MeanSquaredError("score").compute(np.zeros(2), [])


@pytest.mark.parametrize("label", [-1, 2, 0.0, "good"])
def test_a_label_is_the_number_of_a_score(label):
    with pytest.raises(TrainingError, match=r"expected labels from 0 to 1, or None"):
        classified("here", np.zeros((2, 2)), [0, label])


@pytest.mark.parametrize("shape", [(2,), (2, 1), (2, 2, 2)])
def test_a_value_is_a_row_of_scores(shape):
    with pytest.raises(TrainingError, match="two scores or more"):
        classified("here", np.zeros(shape), [0, 0])


def test_what_is_counted_is_one_of_two():
    with pytest.raises(TrainingError, match="'value' or 'example'"):
        Accuracy("root", every="node")
