"""Metrics are what their formulas say, over one batch or several."""

import math

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import TrainingError, UnknownNameError
from foldbatch.train.metrics import (
    F1,
    Accuracy,
    Confusion,
    MeanAbsoluteError,
    MeanSquaredError,
    Perplexity,
    SideAccuracy,
    Tally,
    TopK,
    figure_of,
    is_better,
    labelled,
)


def test_values_without_a_label_are_left_out():
    values, labels = labelled("here", np.arange(8).reshape(4, 2), [None, 1, None, 0])
    assert (values.tolist(), labels) == ([[2, 3], [6, 7]], [1, 0])


def test_what_is_counted_is_one_of_two():
    with pytest.raises(TrainingError, match="'value' or 'example'"):
        Accuracy("root", every="node")


rng = np.random.default_rng(0)
SCORES = rng.normal(size=(60, 5)).astype("float32")
SCORES[:, 3] -= 9  # never the answer
LABELS = [None if number == 4 else int(number) for number in rng.integers(0, 5, 60)]  # 4 is no label
KEPT = [place for place, label in enumerate(LABELS) if label is not None]
ANSWERS = SCORES.argmax(axis=1)


def test_no_values_have_no_figure():
    nothing = np.zeros((0, 2))
    assert all(math.isnan(kind("root").compute(nothing, [])) for kind in (Accuracy, SideAccuracy, TopK, F1))
    assert Confusion("root").compute(nothing, []) == [[0, 0], [0, 0]]
    assert math.isnan(Accuracy("root").compute(np.zeros((2, 2)), [None, None]))


@pytest.mark.parametrize("average", ["macro", None])
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


@pytest.mark.parametrize("classes", [2, 4, 5])
def test_a_side_is_that_of_more_probability(classes):
    scores, middle = SCORES[:, :classes], (classes - 1) / 2
    numbers = np.random.default_rng(2).integers(0, classes, len(scores))
    labels = [None if place % 7 == 0 else int(number) for place, number in enumerate(numbers)]
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    right = [
        (row[np.arange(classes) > middle].sum() > row[np.arange(classes) < middle].sum()) == (label > middle)
        for row, label in zip(probabilities, labels, strict=True)
        if label is not None and label != middle
    ]
    assert 0 < np.mean(right) < 1
    assert SideAccuracy("x").compute(scores, labels) == pytest.approx(np.mean(right))


def test_a_side_is_no_matter_of_the_greatest_score():
    unsure = np.log([[0.4, 0.0001, 0.0999, 0.25, 0.25]])  # the greatest is 0, and 3 and 4 together are more
    assert SideAccuracy("x").compute(unsure, [4]) == 1.0 and Accuracy("x").compute(unsure, [4]) == 0.0
    assert math.isnan(SideAccuracy("x").compute(unsure, [2]))  # nothing but the middle


def test_a_class_that_never_occurs_is_no_part_of_the_mean():
    scores = np.eye(3)[[0, 0, 1]]
    assert F1("x").compute(scores, [0, 0, 1]) == 1.0
    assert F1("x", average=None).compute(scores, [0, 0, 1]) == {"0": 1.0, "1": 1.0, "2": 0.0}


rng_of_numbers = np.random.default_rng(1)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_errors_are_scikit_learns(shape):
    sklearn = pytest.importorskip("sklearn.metrics", reason="needs scikit-learn")
    values, labels = rng_of_numbers.normal(size=(2, 9, *shape))
    given = [None, *labels[1:].tolist()]
    assert MeanSquaredError("x").compute(values, given) == pytest.approx(
        sklearn.mean_squared_error(labels[1:], values[1:])
    )
    assert MeanAbsoluteError("x").compute(values, given) == pytest.approx(
        sklearn.mean_absolute_error(labels[1:], values[1:])
    )


def test_perplexity_equals_a_plain_loop_on_logits_and_on_log_probabilities():
    logits, labels = rng_of_numbers.normal(size=(6, 4)), [0, 1, None, 3, 2, 1]
    log_probabilities = [[x - math.log(sum(map(math.exp, row))) for x in row] for row in logits.tolist()]
    own = [row[label] for row, label in zip(log_probabilities, labels, strict=True) if label is not None]
    expected = math.exp(-sum(own) / len(own))
    assert Perplexity("x").compute(logits, labels) == pytest.approx(expected)
    assert Perplexity("x").compute(np.array(log_probabilities), labels) == pytest.approx(expected)
    assert Perplexity("x").compute(np.array([[0.0, 5000.0]], "float32"), [0]) == math.inf


def program() -> fb.Program:
    """Return the sum over a nested list (number, label, children), collected at every node."""
    tree = fb.ForwardDeclaration(output_type="float32")
    children = fb.GetItem(2) >> fb.Map(tree()) >> fb.Sum()
    total = fb.AllOf(fb.GetItem(0) >> fb.Scalar(), children) >> fb.Function(lambda a, b: a + b)
    seen = fb.AllOf(fb.GetItem(0), fb.Metric("sum")) >> fb.GetItem(0)
    tree.resolve_to(fb.AllOf(total, fb.GetItem(1)) >> seen)
    return fb.compile(tree() >> fb.AllOf(fb.Identity(), fb.Loss()) >> fb.GetItem(0))


EXAMPLES = [(1, 7, [(2, None, []), (3, 5, [])]), (4, 4, []), (5, None, [(1, 3, [])])]
SUMS = {"node": [3, 6, 4, 1], "label": [5, 7, 4, 3]}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_figures_are_those_of_all_batches(size):
    metrics = [MeanSquaredError("sum"), MeanSquaredError("sum", "root_mse", every="example")]
    made, tally = program(), Tally(metrics)
    for first in range(0, 3, size):
        part = EXAMPLES[first : first + size]
        tally.add(made.run(part, losses=True, metrics=True), len(part))
    figures = tally.figures()
    difference = np.subtract(SUMS["node"], SUMS["label"])
    assert figures["loss"] == 16 / 3
    assert figures["mse"] == np.mean(difference**2)
    assert figures["root_mse"] == 0.5  # of 6 for 7 and 4 for 4; the root of the third has no label


def test_a_block_that_is_not_there_is_named():
    results = program().run(EXAMPLES, losses=True, metrics=True)
    with pytest.raises(UnknownNameError, match="expected a metric of sum, found 'root'"):
        Tally([Accuracy("root")]).add(results, 3)


FIGURES = {"loss": 0.5, "validation_f1": {"good": 0.25}, "validation_confusion": [[1]], "note": "text"}


def test_figures_of_classes_have_names_of_two_parts():
    assert figure_of("here", FIGURES, "validation_f1/good") == 0.25


@pytest.mark.parametrize("name", ["validation_los", "validation_f1", "validation_confusion", "note"])
def test_what_is_no_number_is_refused(name):
    with pytest.raises(UnknownNameError, match="here: expected a figure of loss, validation_f1/good"):
        figure_of("here", FIGURES, name)


def test_nan_is_never_better():
    assert not is_better(math.nan, None, "min")
    assert is_better(1.0, None, "max")
    assert not is_better(1.0, 1.0, "max")
