"""A training with weights is that of examples which are there more often."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import TrainingError
from foldbatch.train import Accuracy, ClipGradients, LambdaCallback, Trainer
from foldbatch.train.weights import by_class, weights_of
from tests.communicators.threads import in_threads
from tests.train.small import DEV, EXAMPLES, assert_same, figures, model, trainer

COUNTS = [number % 3 for number in range(len(EXAMPLES))]
REPEATED = [example for example, count in zip(EXAMPLES, COUNTS, strict=True) for _ in range(count)]


def fitted(examples, *, callbacks=(), **options):
    """A training without dropout in batches of all examples."""
    program = fb.compile(model(vector=fb.Vector(3)), "numpy")
    made = Trainer(
        program, fb.Adam(0.1), batch_size=99, metrics=[Accuracy("out")], callbacks=callbacks, seed=1
    )
    made.fit(examples, DEV, epochs=3, **options)
    return made


def assert_close(made, right):
    for ours, theirs in zip(figures(made), figures(right), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)
    for name, array in right.program.params.items():
        np.testing.assert_allclose(made.program.params[name], array, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scale", [1, 0.01])
def test_a_weight_of_n_counts_as_n_examples_in_parameters_and_figures(scale):
    """Whatever the unit is; clipped gradients are those of the mean, too."""
    weights = np.array(COUNTS) * scale
    assert_close(
        fitted(EXAMPLES, sample_weight=weights, callbacks=[ClipGradients(0.1)]),
        fitted(REPEATED, callbacks=[ClipGradients(0.1)]),
    )


def test_classes_have_weights():
    twice = [example for example in EXAMPLES for _ in range(1 + example[1])]
    assert_close(fitted(EXAMPLES, class_weight={1: 2}), fitted(twice))
    both = fitted(EXAMPLES, class_weight={0: 1, 1: 2}, sample_weight=COUNTS)
    assert_close(both, fitted([example for example in REPEATED for _ in range(1 + example[1])]))


def test_balanced_classes_are_scikit_learns():
    sklearn = pytest.importorskip("sklearn.utils.class_weight", reason="needs scikit-learn")
    labels = ["a", "b", "a", "c", "a", "b"]
    right = sklearn.compute_sample_weight("balanced", labels)
    np.testing.assert_allclose(by_class(labels, "balanced"), right)
    assert by_class([*labels, None], "balanced")[-1] == 1
    trees = [fb.trees.Tree.leaf(label, "word") for label in labels]
    records = [{"label": label} for label in labels]
    for examples in (trees, records, list(enumerate(labels))):
        np.testing.assert_allclose(weights_of(examples, None, "balanced"), right / right.mean(), rtol=1e-6)


def test_weights_go_with_their_examples_through_processes():
    def parallel(communicator):
        program = fb.train.DataParallel(fb.compile(model(), "numpy"), communicator)
        made = Trainer(program, fb.Adam(0.1), batch_size=8, seed=3)
        made.fit(EXAMPLES, epochs=2, sample_weight=COUNTS)
        return made

    whole = Trainer(fb.compile(model(), "numpy"), fb.Adam(0.1), batch_size=8, seed=3)
    whole.fit(EXAMPLES, epochs=2, sample_weight=COUNTS)
    for made in in_threads(parallel, 2):
        assert_close(made, whole)


@pytest.mark.parametrize("accumulate", [2, 5])
def test_weights_go_with_their_examples_through_parts_of_an_update(accumulate):
    large, small = (fb.compile(model(), "numpy") for _ in range(2))
    whole = Trainer(large, fb.Adam(0.1), batch_size=20, seed=3)
    parts = Trainer(small, fb.Adam(0.1), batch_size=20 // accumulate, seed=3, accumulate=accumulate)
    for made in (whole, parts):
        made.fit(EXAMPLES, epochs=1, sample_weight=COUNTS)
    assert parts.steps == whole.steps == 1
    # the same examples in another order draw other numbers
    assert parts.history[0]["loss"] > 0


def test_a_resumed_training_has_the_weights_it_began_with(tmp_path):
    whole = trainer(tmp_path / "whole")
    whole.fit(EXAMPLES, DEV, epochs=3, sample_weight=COUNTS)
    trainer(tmp_path / "cut").fit(EXAMPLES, DEV, epochs=1, sample_weight=COUNTS)
    resumed = trainer(tmp_path / "cut")
    resumed.fit(EXAMPLES, DEV, epochs=3, sample_weight=COUNTS, resume=True)
    assert_same(whole, resumed)
    for weights in (None, COUNTS[::-1]):
        with pytest.raises(TrainingError, match="weights of examples"):
            trainer(tmp_path / "cut").fit(EXAMPLES, DEV, epochs=4, sample_weight=weights, resume=True)


def test_a_later_fit_without_weights_has_none():
    seen = []
    watch = LambdaCallback(on_step_start=lambda made: seen.append(made.batch.weights))
    made = fitted(EXAMPLES, sample_weight=COUNTS, callbacks=[watch])
    made.fit(EXAMPLES, epochs=4)
    assert [weights is None for weights in seen] == [False] * 3 + [True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample_weight": [1, 2]}, "fit sample_weight: expected 20 numbers, one for each example, found"),
        ({"sample_weight": [-1] * 20}, "fit sample_weight: expected finite numbers of 0 or more, found -1"),
        ({"sample_weight": [0] * 20}, "fit weights: expected a weight above 0, found none"),
        ({"class_weight": {2: 1}}, "fit class_weight: expected classes of the labels: .*, found 2"),
        ({"class_weight": {1: "much"}}, "fit class_weight: expected a dict of numbers by class"),
        ({"class_weight": "even"}, "fit class_weight: expected a dict .* or 'balanced', found str 'even'"),
        ({"class_weight": [1, 2]}, "fit class_weight: expected a dict .*; sample_weight takes a number"),
    ],
)
def test_weights_that_do_not_fit_are_refused_before_anything_changes(options, message):
    program = fb.compile(model(), "numpy")
    before = {name: np.array(array) for name, array in program.params.items()}
    with pytest.raises(TrainingError, match=message):
        Trainer(program, fb.Adam(0.1)).fit(EXAMPLES, epochs=1, **options)
    for name, array in before.items():
        np.testing.assert_array_equal(program.params[name], array)


@pytest.mark.parametrize("example", [([1, 2, 3], 1, 2), "a text", {"x": 1}])
def test_examples_without_a_label_have_no_class(example):
    with pytest.raises(TrainingError, match="examples with a label: .*; give sample_weight"):
        weights_of([example], None, "balanced")
    with pytest.raises(TrainingError, match="a class as each label, found list"):
        weights_of([("a", [1, 0])], None, "balanced")
