"""Metrics of scikit-learn and torchmetrics are theirs, to the last digits, on values that programs collect."""

import math

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import BackendError, TrainingError
from foldbatch.train import AUROC, F1, R2, AveragePrecision, TorchMetric, Trainer, libraries
from foldbatch.train.metrics import mode_of
from tests.communicators.threads import in_threads
from tests.train.small import EXAMPLES, model

sklearn = pytest.importorskip("sklearn.metrics", reason="needs scikit-learn")
rng = np.random.default_rng(0)
SCORES = rng.normal(size=(80, 4)).astype("float32")
NUMBERS = [None if number == 4 else int(number) for number in rng.integers(0, 5, 80)]
KEPT = [place for place, number in enumerate(NUMBERS) if number is not None]
LABELS = np.array([NUMBERS[place] for place in KEPT])
SETS = rng.integers(0, 2, (80, 4))
SETS_OR_NONE = [None if number == 3 else row.tolist() for number, row in enumerate(SETS)]
CHANCES = np.exp(SCORES[KEPT]) / np.exp(SCORES[KEPT]).sum(axis=1, keepdims=True)
THEIRS = {AUROC: sklearn.roc_auc_score, AveragePrecision: sklearn.average_precision_score}
kinds = pytest.mark.parametrize("kind", [AUROC, AveragePrecision])


def listed(figure):
    return list(figure.values()) if isinstance(figure, dict) else figure


@kinds
@pytest.mark.parametrize("average", ["macro", "weighted", None])
def test_rankings_of_classes_are_scikit_learns(kind, average):
    hot = np.eye(4)[LABELS]
    right = THEIRS[kind](hot, CHANCES, average=average)
    np.testing.assert_allclose(listed(kind("x", average=average).compute(SCORES, NUMBERS)), right, rtol=1e-6)


@kinds
@pytest.mark.parametrize("average", ["macro", "weighted", None])
def test_rankings_of_sets_of_classes_are_scikit_learns(kind, average):
    rest = [place for place in range(80) if place != 3]
    right = THEIRS[kind](SETS[rest], SCORES[rest], average=average)
    figure = kind("x", average=average).compute(SCORES, SETS_OR_NONE)
    np.testing.assert_allclose(listed(figure), right, rtol=1e-6)


@kinds
def test_of_two_classes_the_second_is_the_one_that_is_looked_for(kind):
    """By the difference of logits: probabilities of 1 to the last bit are still in an order."""
    scores, labels = SCORES[KEPT][:, :2] * 40, LABELS % 2
    difference = (scores[:, 1] - scores[:, 0]).astype(float)
    assert kind("x").compute(scores, labels.tolist()) == pytest.approx(THEIRS[kind](labels, difference))


@kinds
def test_classes_without_right_or_wrong_values_have_no_figure(kind):
    scores = np.eye(3)[[0, 1, 0]]
    by_class = kind("x", average=None, classes=["a", "b", "c"]).compute(scores, [0, 1, 0])
    assert by_class["a"] == by_class["b"] == kind("x").compute(scores, [0, 1, 0]) == 1.0
    assert math.isnan(by_class["c"])
    assert math.isnan(kind("x").compute(scores[:1], [0]))
    assert math.isnan(kind("x").compute(np.zeros((0, 2)), []))
    assert math.isnan(kind("x").compute(np.full((2, 2), np.nan), [0, 1]))


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", None])
def test_f1_is_scikit_learns(average):
    right = sklearn.f1_score(LABELS, SCORES[KEPT].argmax(axis=1), average=average)
    np.testing.assert_allclose(listed(F1("x", average=average).compute(SCORES, NUMBERS)), right)
    rest = [place for place in range(80) if place != 3]
    right = sklearn.f1_score(SETS[rest], SCORES[rest] > 0, average=average)
    np.testing.assert_allclose(listed(F1("x", average=average).compute(SCORES, SETS_OR_NONE)), right)


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_r2_is_scikit_learns(shape):
    values, labels = rng.normal(size=(2, 20, *shape))
    right = sklearn.r2_score(labels.reshape(20, -1), values.reshape(20, -1))
    assert R2("x").compute(np.array([*values, values[0]]), [*labels, None]) == pytest.approx(right)
    assert math.isnan(R2("x").compute(values[:1], list(labels[:1])))


def test_names_of_figures_say_what_is_better():
    assert {mode_of("x", f"validation_{kind('x').name}") for kind in (AUROC, AveragePrecision, R2)} == {"max"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AUROC("x", average="micro"), "AUROC average: expected 'macro', 'weighted' or None, found"),
        (lambda: F1("x", average="all"), "F1 average: expected 'macro', 'micro', 'weighted' or None"),
        (
            lambda: AUROC("x").compute(SCORES, [[0, 1]] * 80),
            "AUROC: expected numbers 0 or 1, 4 in each label",
        ),
        (
            lambda: F1("x").compute(SCORES, [[0, 1, 2, 0]] * 80),
            "F1: expected numbers 0 or 1, 4 in each label",
        ),
        (
            lambda: F1("x").compute(SCORES, [[0, 1, 1, 0], 1] * 40),
            "F1: expected numbers 0 or 1, .* found int 1",
        ),
        (
            lambda: AUROC("x").compute(SCORES, [7] * 80),
            "AUROC: expected labels from 0 to 3, or None, found int 7",
        ),
        (lambda: TorchMetric(AUROC("x")), "TorchMetric: expected a metric of torchmetrics, found AUROC"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(TrainingError, match=message):
        make()


@pytest.mark.parametrize("kind", [AUROC, AveragePrecision, R2])
def test_without_scikit_learn_the_command_is_named(kind, monkeypatch):
    monkeypatch.setattr(libraries, "find_spec", lambda name: None)
    with pytest.raises(
        BackendError, match=rf"{kind.__name__}: expected the library scikit-learn, .*\[sklearn\]"
    ):
        kind("x")


# -- torchmetrics


def trained(metrics, **options):
    return Trainer(fb.compile(model(vector=fb.Vector(3)), "numpy"), fb.Adam(0.1), metrics=metrics, **options)


def test_metrics_of_torchmetrics_are_given_as_they_are():
    torchmetrics = pytest.importorskip("torchmetrics")
    both = torchmetrics.MetricCollection(
        {"f1": torchmetrics.F1Score("multiclass", num_classes=2, average="macro")}
    )
    table = torchmetrics.ConfusionMatrix("multiclass", num_classes=2)
    made = trained(
        [torchmetrics.Accuracy("multiclass", num_classes=2), fb.train.Accuracy("out"), both, table]
    )
    history = made.fit(EXAMPLES, EXAMPLES[:7], epochs=2)
    assert history[-1]["validation_multiclass_accuracy"] == pytest.approx(history[-1]["validation_accuracy"])
    figures = made.evaluate(EXAMPLES)  # of all at once, and nothing of what was before
    scores = np.array(made.predict(EXAMPLES))
    labels = [label for _, label in EXAMPLES]
    assert figures["metric_collection"]["f1"] == pytest.approx(F1("x").compute(scores, labels))
    assert figures["multiclass_confusion_matrix"] == fb.train.Confusion("x").compute(scores, labels)
    made.metrics = [torchmetrics.AUROC("multiclass", num_classes=2)]
    assert made.evaluate(EXAMPLES)["multiclass_auroc"] == pytest.approx(AUROC("x").compute(scores, labels))


def test_one_of_torchmetrics_names_its_block_where_there_are_several():
    torchmetrics = pytest.importorskip("torchmetrics")
    two = fb.AllOf(
        fb.GetItem(0) >> fb.AllOf(fb.Scalar(), fb.Identity()) >> fb.Metric("a"),
        fb.GetItem(1) >> fb.AllOf(fb.Scalar(), fb.Identity()) >> fb.Metric("b"),
        fb.GetItem(0) >> fb.Scalar() >> fb.Loss(),
    )
    program = fb.compile(two, "numpy")
    with pytest.raises(
        TrainingError, match="metric mean_squared_error: expected one Metric block, found a, b"
    ):
        Trainer(program, fb.SGD(), metrics=[torchmetrics.MeanSquaredError()])
    of = TorchMetric(torchmetrics.MeanSquaredError(), "b", "mse_b")
    assert Trainer(program, fb.SGD(), metrics=[of]).evaluate([(1, 2), (3, 4)])["mse_b"] == 0


def test_a_walk_that_is_not_read_yet_has_its_only_block():
    torchmetrics = pytest.importorskip("torchmetrics")
    w = fb.Parameter([], init=1.0, name="w")

    def walk(pair):
        fb.metric("number", w * pair[0], label=pair[1])
        fb.loss((w * pair[0] - pair[1]) ** 2)

    made = Trainer(fb.compile(walk, "numpy"), fb.SGD(), metrics=[torchmetrics.MeanSquaredError()])
    assert made.evaluate([(1.0, 3.0), (2.0, 2.0)])["mean_squared_error"] == pytest.approx(2.0)


def test_processes_have_the_figures_of_one():
    torchmetrics = pytest.importorskip("torchmetrics")

    def parallel(communicator):
        program = fb.train.DataParallel(fb.compile(model(vector=fb.Vector(3)), "numpy"), communicator)
        metrics = [torchmetrics.Accuracy("multiclass", num_classes=2), AUROC("out")]
        return Trainer(program, fb.Adam(0.1), metrics=metrics).evaluate(EXAMPLES)

    whole = trained([torchmetrics.Accuracy("multiclass", num_classes=2), AUROC("out")]).evaluate(EXAMPLES)
    for figures in in_threads(parallel, 2):
        assert figures == pytest.approx(whole)


def test_what_torchmetrics_refuses_is_said_in_one_sentence():
    torchmetrics = pytest.importorskip("torchmetrics")
    with pytest.raises(TrainingError, match="metric multiclass_accuracy: expected values and labels that it"):
        trained([torchmetrics.Accuracy("multiclass", num_classes=5)]).evaluate(EXAMPLES)


# -- several classes at once


def test_several_classes_at_once_are_learnt_and_told():
    """The loss is PyTorch's; answers, AUROC and F1 are right in the end."""
    torch = pytest.importorskip("torch")
    scores = fb.GetItem(0) >> fb.Vector(2) >> fb.Linear(2, name="out")
    label = fb.GetItem(1) >> fb.Vector(2)
    loss = fb.Function(lambda x, y: ops.mean(ops.binary_cross_entropy(x, y))) >> fb.Loss()
    seen = fb.AllOf(scores, fb.GetItem(1)) >> fb.Metric("out")
    program = fb.compile(fb.AllOf(scores, seen, fb.AllOf(scores, label) >> loss) >> fb.GetItem(0), "numpy")
    rows = np.random.default_rng(1).normal(size=(40, 2))
    examples = [(row.tolist(), (row > 0.1).astype(int).tolist()) for row in rows]
    results = program.run(examples, losses=True)
    given, wanted = (
        torch.tensor(np.array(list(results))),
        torch.tensor([sets for _, sets in examples]).float(),
    )
    right = torch.nn.functional.binary_cross_entropy_with_logits(given, wanted, reduction="sum") / 2
    assert results.loss == pytest.approx(float(right), rel=1e-5)
    made = Trainer(program, fb.Adam(0.3), metrics=[AUROC("out"), F1("out", average="micro")])
    made.fit(examples, epochs=40)
    assert min(made.evaluate(examples)[name] for name in ("auroc", "f1")) > 0.95
