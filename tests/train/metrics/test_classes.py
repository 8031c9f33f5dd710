"""Figures of classes: equal to plain loops and to scikit-learn's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from foldbatch.errors import TrainingError
from foldbatch.train.metrics import F1, Accuracy, Confusion, TopK

rng = np.random.default_rng(0)
SCORES = rng.normal(size=(60, 5)).astype("float32")
SCORES[:, 3] -= 9  # never the answer
LABELS = [None if number == 4 else int(number) for number in rng.integers(0, 5, 60)]  # 4 is no label
KEPT = [place for place, label in enumerate(LABELS) if label is not None]
ANSWERS = SCORES.argmax(axis=1)


def test_no_values_have_no_figure():
    nothing = np.zeros((0, 2))
    assert all(math.isnan(kind("root").compute(nothing, [])) for kind in (Accuracy, TopK, F1))
    assert Confusion("root").compute(nothing, []) == [[0, 0], [0, 0]]
    assert math.isnan(Accuracy("root").compute(np.zeros((2, 2)), [None, None]))


def test_figures_equal_plain_loops():
    pairs = [(LABELS[place], ANSWERS[place]) for place in KEPT]
    assert Accuracy("x").compute(SCORES, LABELS) == sum(a == b for a, b in pairs) / len(pairs)
    top = [LABELS[place] in sorted(range(5), key=lambda c: -SCORES[place, c])[:2] for place in KEPT]
    assert TopK("x", 2).compute(SCORES, LABELS) == sum(top) / len(top)
    table = [[sum(pair == (row, column) for pair in pairs) for column in range(5)] for row in range(5)]
    assert Confusion("x").compute(SCORES, LABELS) == table
    by_class = {}
    for c in range(5):
        right, chosen = pairs.count((c, c)), sum(b == c for _, b in pairs)
        present = sum(a == c for a, _ in pairs)
        by_class[str(c)] = 2 * right / (chosen + present)
    assert F1("x", average=None).compute(SCORES, LABELS) == pytest.approx(by_class)


@pytest.mark.parametrize("average", ["macro", "micro", None])
def test_f1_is_scikit_learns(average):
    sklearn = pytest.importorskip("sklearn.metrics", reason="needs scikit-learn")
    given = SCORES[:, :4]  # class 3 is a label and never an answer
    answers, labels = given[KEPT].argmax(axis=1), [LABELS[place] for place in KEPT]
    ours = F1("x", average=average).compute(given, LABELS)
    theirs = sklearn.f1_score(labels, answers, average=average)
    np.testing.assert_allclose(list(ours.values()) if average is None else ours, theirs)


def test_other_figures_are_scikit_learns():
    sklearn = pytest.importorskip("sklearn.metrics", reason="needs scikit-learn")
    labels = [LABELS[place] for place in KEPT]
    table = sklearn.confusion_matrix(labels, ANSWERS[KEPT], labels=range(5)).tolist()
    assert Confusion("x").compute(SCORES, LABELS) == table
    top = sklearn.top_k_accuracy_score(labels, SCORES[KEPT], k=3, labels=range(5))
    assert TopK("x", 3).compute(SCORES, LABELS) == pytest.approx(top)


def test_a_class_that_never_occurs_is_no_part_of_the_mean():
    scores = np.eye(3)[[0, 0, 1]]
    assert F1("x").compute(scores, [0, 0, 1]) == 1.0
    assert F1("x", average=None).compute(scores, [0, 0, 1]) == {"0": 1.0, "1": 1.0, "2": 0.0}


def test_settings_are_checked():
    with pytest.raises(TrainingError, match="'macro', 'micro' or None"):
        F1("x", average="weighted")
    with pytest.raises(TrainingError, match="TopK k: expected a whole number of 1 or more"):
        TopK("x", 0)
    with pytest.raises(TrainingError, match="F1 classes: expected 5 names, found 1"):
        F1("x", average=None, classes=["good"]).compute(SCORES, LABELS)
