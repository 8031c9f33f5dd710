"""Estimators in scikit-learn's hands: its checks, its searches, and its promises about parameters and pickles."""

import pickle
from importlib.util import find_spec

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")

from sklearn import model_selection, utils  # noqa: E402
from sklearn.base import clone, is_classifier, is_regressor  # noqa: E402 - behind the question whether it is there
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.utils import estimator_checks  # noqa: E402

from foldbatch.errors import TrainingError  # noqa: E402
from foldbatch.estimators import StructureClassifier, StructureRegressor  # noqa: E402
from foldbatch.trees import Tree, parse_brackets  # noqa: E402
from tests.trees.test_given import PandasLike  # noqa: E402

SMALL = {"hidden": 3, "size": 3, "epochs": 3, "lr": 0.1, "batch_size": 8, "backend": "numpy"}
TEXTS = [f"(S (N {noun}) (V {verb}))" for noun in ("I", "you", "he") for verb in ("sat", "ran")] * 2
TREES = [parse_brackets(text) for text in TEXTS]
SAT = ["rest" if "sat" in text else "motion" for text in TEXTS]
LENGTHS = [float(len(text)) for text in TEXTS]
both = pytest.mark.parametrize(("kind", "y"), [(StructureClassifier, SAT), (StructureRegressor, LENGTHS)])


class OfRows:
    """Takes tables of numbers, as scikit-learn's checks give: each row becomes a tree."""

    def fit(self, X, y, sample_weight=None):
        return super().fit(rows_as_trees(X), y, sample_weight)

    def _results(self, structures):
        return super()._results(rows_as_trees(structures))


class RowClassifier(OfRows, StructureClassifier):
    pass


class RowRegressor(OfRows, StructureRegressor):
    pass


def rows_as_trees(X):
    return [Tree.from_nested(("row", *(("x", f"{number:.0f}") for number in row))) for row in np.asarray(X)]


CHECKS = """
check_estimator_cloneable check_estimator_tags_renamed check_valid_tag_types check_estimator_repr
check_no_attributes_set_in_init check_fit_score_takes_y check_estimators_overwrite_params
check_dont_overwrite_parameters check_estimators_fit_returns_self check_readonly_memmap_input
check_estimators_unfitted check_do_not_raise_errors_in_init_or_set_params check_mixin_order
check_parameters_default_constructible check_methods_sample_order_invariance check_methods_subset_invariance
check_fit2d_1feature check_get_params_invariance check_set_params check_dict_unchanged check_fit_idempotent
check_fit_check_is_fitted check_estimators_pickle check_requires_y_none
check_sample_weights_pandas_series check_sample_weights_not_an_array check_sample_weights_list
check_sample_weights_shape check_sample_weights_not_overwritten
""".split()


@pytest.mark.parametrize("number", range(len(CHECKS)), ids=CHECKS)
def test_scikit_learns_checks_that_apply_pass(number):
    """By turns of a classifier and a regressor, which differ in their loss alone."""
    check, kind = CHECKS[number], (RowClassifier, RowRegressor)[number % 2]
    getattr(estimator_checks, check)(kind.__name__, kind(**SMALL))


@pytest.mark.parametrize("check", ["check_classifiers_classes", "check_classifiers_one_label"])
def test_the_checks_of_classes_pass(check):
    getattr(estimator_checks, check)("RowClassifier", RowClassifier(**SMALL | {"epochs": 1}))


def test_their_tags_say_what_they_are():
    assert is_classifier(StructureClassifier())
    assert is_regressor(StructureRegressor())
    assert not StructureClassifier().__sklearn_tags__().input_tags.two_d_array


def test_a_classifier_learns_and_answers_with_the_classes_it_was_given():
    classifier = StructureClassifier(**SMALL | {"epochs": 20}).fit(TREES, SAT)
    assert classifier.classes_.tolist() == ["motion", "rest"]
    assert classifier.score(TREES, SAT) == 1.0
    chances = classifier.predict_proba(TREES[:3])
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert classifier.classes_[chances.argmax(axis=1)].tolist() == SAT[:3]
    assert classifier.predict_proba([]).shape == (0, 2)


def test_a_single_class_is_refused():
    with pytest.raises(
        ValueError, match=r"y: expected labels of two classes or more, found only 'rest'; look at"
    ):
        StructureClassifier(**SMALL).fit(TREES[:2], ["rest", "rest"])


def test_a_model_of_sentences_takes_texts_lists_and_trees():
    classifier = StructureClassifier("bilstm", **SMALL).fit(["I sat", ["you", "ran"], TREES[0]], [0, 1, 0])
    assert {"you", "sat"} < set(classifier.vocabulary_)
    assert classifier.predict(["you sat"]).shape == (1,)


def test_a_node_of_a_tree_is_a_structure_of_its_own():
    classifier = StructureClassifier(**SMALL).fit([tree[1] for tree in TREES], SAT)
    assert set(classifier.vocabulary_) == {"<unk>", "sat", "ran"}
    assert set(classifier.kinds_) == {"<unk>", "V"}


@both
def test_a_fit_is_the_same_every_time_and_forgets_the_one_before(kind, y):
    once, twice = (kind(**SMALL, random_state=np.random.RandomState(3)) for _ in range(2))
    other = kind(**SMALL, random_state=np.random.RandomState(4)).fit(TREES, y)
    once.fit(TREES, y)
    twice.fit(TREES[:4], y[:4])
    twice.set_params(random_state=np.random.RandomState(3)).fit(TREES, y)
    assert (other.predict(TREES) != once.predict(TREES)).any() or kind is StructureClassifier
    for name, array in once.parameters_.items():
        np.testing.assert_array_equal(array, twice.parameters_[name])


@both
def test_a_pickle_predicts_the_same_and_later_settings_do_not_touch_it(kind, y):
    estimator = kind(**SMALL).fit(TREES, y)
    copy = pickle.loads(pickle.dumps(estimator))
    copy.set_params(hidden=7, model="rntn")
    np.testing.assert_array_equal(copy.predict(TREES), estimator.predict(TREES))
    for value in copy.program_.params.values():  # as a training that goes on does
        value *= -0.5
    again = pickle.loads(pickle.dumps(copy))
    np.testing.assert_array_equal(again.predict(TREES), copy.predict(TREES))
    assert clone(estimator).get_params() == estimator.get_params()


@both
def test_before_it_is_fitted_it_predicts_nothing(kind, y):
    with pytest.raises(NotFittedError):
        kind().predict(TREES)
    with pytest.raises(NotFittedError):
        _ = kind().program_


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: StructureClassifier().fit(TREES, None), "requires y to be passed, but the target y is None"),
        (lambda: StructureClassifier().fit([], []), "X: expected 1 example or more, found none"),
        (lambda: StructureClassifier().fit(TREES, SAT[:3]), "inconsistent numbers of samples"),
        (
            lambda: StructureClassifier().fit(["I sat", "I ran"], [1, 2]),
            r"X\[0\]: expected a foldbatch.trees.Tree, or what fb.trees.from_ reads, found str",
        ),
        (lambda: StructureClassifier().fit(TREES, [*LENGTHS[:-1], 0.5]), "Unknown label type"),
        (
            lambda: StructureClassifier("forest").fit(TREES, SAT),
            "model: expected a model of .*child_sum, .*'forest'",
        ),
        (lambda: StructureRegressor().fit(TREES[:1], [np.nan]), "y: expected finite numbers"),
        (lambda: StructureRegressor().fit(TREES[:2], [1e300, 0]), "y: expected finite numbers"),
        (
            lambda: StructureClassifier().fit(TREES, SAT, [1, 2]),
            "sample_weight: expected 12 numbers, one for",
        ),
        (lambda: StructureClassifier().fit(TREES, SAT, [0] * 12), "sample_weight: expected a weight above 0"),
        (
            lambda: StructureRegressor().fit(TREES, LENGTHS, [-1] * 12),
            "sample_weight: expected finite numbers",
        ),
        (
            lambda: StructureClassifier(class_weight={"sat": 1}).fit(TREES, SAT),
            "class_weight: expected classes",
        ),
        (
            lambda: StructureClassifier(smoothing=2).fit(TREES, SAT),
            "Task smoothing: expected 0 to 1, found 2",
        ),
        (lambda: StructureRegressor(lr=0).fit(TREES, LENGTHS), "AdamW lr: expected a number above 0"),
    ],
)
def test_what_does_not_fit_is_a_value_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_records_are_read_by_their_schema():
    records = [{"verb": text.split()[-1], "words": text.split()} for text in TEXTS]
    classifier = StructureClassifier("json", **SMALL | {"epochs": 15}).fit(records, SAT)
    assert classifier.predict([{"verb": "sat))"}]).tolist() == ["rest"]
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(records), classifier.predict_proba(records))


def weighted_fit(kind, X, y, **options):
    """A fit in batches of all examples, from the same parameters and the same words."""
    settings = {**SMALL, "batch_size": 99} | {k: v for k, v in options.items() if k != "sample_weight"}
    return kind(**settings).fit(X, y, sample_weight=options.get("sample_weight"))


@both
def test_an_example_of_weight_n_counts_as_n_examples(kind, y):
    counts = [3, 2, 3, 2, 2, 2] * 2  # words are as frequent, compared with each other, as without
    repeated = [(x, label) for x, label, n in zip(TREES, y, counts, strict=True) for _ in range(n)]
    weighted = weighted_fit(kind, TREES, y, sample_weight=counts)
    right = weighted_fit(kind, *map(list, zip(*repeated, strict=True)))
    for name, array in right.parameters_.items():
        np.testing.assert_allclose(weighted.parameters_[name], array, rtol=1e-3, atol=1e-5)
    assert weighted.score(TREES, y, sample_weight=counts) == pytest.approx(
        right.score(*map(list, zip(*repeated, strict=True))), abs=1e-5
    )


def test_classes_have_weights_as_in_scikit_learn():
    y = ["rest", *SAT[1:-3], *["rest"] * 3]
    for class_weight in ("balanced", {"rest": 2.0}):
        weights = utils.class_weight.compute_sample_weight(class_weight, y)
        by_class = weighted_fit(StructureClassifier, TREES, y, class_weight=class_weight)
        right = weighted_fit(StructureClassifier, TREES, y, sample_weight=weights)
        for name, array in right.parameters_.items():
            np.testing.assert_allclose(by_class.parameters_[name], array, rtol=1e-5, atol=1e-6)
    search = model_selection.GridSearchCV(
        StructureClassifier(**SMALL | {"epochs": 1}), {"class_weight": [None, "balanced"]}, cv=2
    )
    assert search.fit(TREES, SAT).cv_results_["mean_test_score"].shape == (2,)


def test_labels_are_smoothed():
    sharp, smooth = (
        weighted_fit(StructureClassifier, TREES, SAT, epochs=60, smoothing=s) for s in (0.0, 0.4)
    )
    assert sharp.predict_proba(TREES).max() > 0.95
    np.testing.assert_allclose(smooth.predict_proba(TREES).max(axis=1), 0.8, atol=0.05)


def test_folds_of_a_cross_validation_learn_nothing_of_labels_that_are_noise():
    """Each fit begins anew, whatever the same estimator has learnt before."""
    draw = np.random.default_rng(1)
    trees = [parse_brackets(f"(S (N {a}) (V {b}))") for a in "abcdef" for b in "uvwxyz"]
    classes = draw.permutation(np.arange(len(trees)) % 2)
    settings = {**SMALL, "hidden": 8, "size": 8, "epochs": 8}
    scores = model_selection.cross_val_score(StructureClassifier(**settings), trees, classes, cv=3)
    assert np.mean(scores) < 0.75


@pytest.mark.parametrize("labels", [[False, True], [0, 1], [7, 3], ["no", "yes"], [1.0, 2.0]])
def test_labels_come_back_as_they_were_given(labels):
    records = [{"a": n, "b": "xyz"[n % 3]} for n in range(12)]
    y = [labels[n % 2] for n in range(12)]
    classifier = StructureClassifier("json", hidden=2, size=2, epochs=1, backend="numpy").fit(records, y)
    found = pickle.loads(pickle.dumps(classifier)).predict(records).tolist()
    assert {*map(type, found)} == {type(labels[0])}
    assert {*found} <= {*labels}


def test_labels_of_several_types_are_refused():
    with pytest.raises(TrainingError, match="y: expected labels of one type, found int and str"):
        StructureClassifier("json").fit([{"a": 1}, {"a": 2}], [1, "1"])


def test_records_of_tables_are_their_rows():
    """A DataFrame of pandas where there is one, and what speaks as one."""
    rows = [{"a": n, "b": "xyz"[n % 3], "c": np.float32(n / 2)} for n in range(60)]
    frames = [PandasLike(rows)]
    if find_spec("pandas"):
        frames.append(pytest.importorskip("pandas").DataFrame(rows))
    y = ["even", "odd"] * 30
    for frame in frames:
        classifier = StructureClassifier("json", hidden=2, size=2, epochs=1, backend="numpy").fit(frame, y)
        assert set(classifier.schema_.root.kinds[0].fields) == {"a", "b", "c"}
        assert classifier.predict(frame).tolist() == classifier.predict(rows).tolist()
        with pytest.raises(TrainingError, match="model='json' reads records"):
            StructureClassifier().fit(frame, y)
