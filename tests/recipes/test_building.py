"""Models, optimizers, metrics and callbacks are those that a configuration says."""

from pathlib import Path

import pytest

import foldbatch as fb
from foldbatch.errors import TrainingError, UnknownNameError
from foldbatch.recipes import building
from foldbatch.recipes.configuration import OptimizerOptions, ScheduleOptions
from foldbatch.recipes.data import Dataset
from foldbatch.train.metrics import mode_of
from tests.recipes.test_data import configured

TREE = fb.trees.parse_brackets("(1 (0 good) (1 (0 good) (0 film)))", labels=int)
FUNCTION = fb.trees.python_tree("def f(readLine): return read_it")


def built(configuration, trees, kind="nodes", dev=()):
    return fb.compile(building.build_model(configuration, Dataset(trees, list(dev), [], kind, ("a", "b"))))


@pytest.mark.parametrize("name", ["tree_lstm", "child_sum", "rntn", "bilstm"])
def test_models_of_trees(name):
    kind = "root" if name == "bilstm" else "nodes"
    program = built(configured(model__name=name, model__hidden=3, words__size=4), [TREE], kind)
    assert program.run([TREE])[0].shape == (2,)
    assert program.params["words.weight"].shape == (3, 4)


def test_rare_words_are_unknown():
    once = fb.trees.parse_brackets("(1 (0 dull) (1 film))", labels=int)
    program = built(configured(words__minimum=2, words__size=4, model__hidden=2), [TREE, once])
    assert program.params["words.weight"].shape == (2, 4)  # only film is in two examples


@pytest.mark.parametrize("name", ["tree_lstm", "child_sum", "rntn", "bilstm"])
def test_a_word_is_the_same_in_lower_case(name):
    kind = "root" if name == "bilstm" else "nodes"
    upper = fb.trees.parse_brackets("(1 (0 Good) (1 (0 GOOD) (0 film)))", labels=int)
    options = {"model__name": name, "model__hidden": 3, "words__size": 4, "words__spread": 1.0}
    program = built(configured(**options, words__lower="true"), [TREE, upper], kind)
    assert program.params["words.weight"].shape == (3, 4)
    lower, same = program.run([TREE, upper])
    assert lower.tolist() == same.tolist()
    apart = built(configured(**options), [TREE, upper], kind)
    assert apart.params["words.weight"].shape == (5, 4)


@pytest.mark.parametrize("name", building.OPTIMIZERS)
def test_optimizers_are_made_by_name(name):
    given = OptimizerOptions(name=name, lr=0.5, weight_decay=0.1, lr_factors={"words": 0.1})
    optimizer = building.build_optimizer(given)
    assert type(optimizer) is building.OPTIMIZERS[name] and optimizer.lr == 0.5
    assert building.build_optimizer(OptimizerOptions(name=name)).lr == building.OPTIMIZERS[name]().lr


def test_a_setting_that_a_rule_lacks_is_named():
    with pytest.raises(fb.errors.TrainingError, match="expected a rule with momentum, found adam"):
        building.build_optimizer(OptimizerOptions(name="adam", momentum=0.9))


def test_the_structure_of_an_example():
    assert building.structure_of((FUNCTION, 1)) is FUNCTION and building.structure_of(TREE) is TREE


def built_of_steering(dev=(1,), kind="class", **options):
    dataset = Dataset([1], list(dev), [], kind, ("a", "b"))
    return building.build_callbacks(configured(**options), dataset, 10, Path("run"))


def names(dev=(1,), **options):
    return [type(callback).__name__ for callback in built_of_steering(dev, **options)]


def test_callbacks_suit_the_options():
    assert names() == ["NaNGuard", "CSVLog", "Progress", "Checkpoints"]
    assert names(schedule__name="cosine")[1] == "Schedule"
    assert names(schedule__name="plateau")[1] == "ReduceLROnPlateau"
    assert "ReduceLROnPlateau" not in names(schedule__name="plateau", dev=())
    assert names(optimizer__clip=5, average__name="moving", train__patience=2)[:4] == [
        "NaNGuard",
        "ClipGradients",
        "AverageWeights",
        "EarlyStopping",
    ]


def test_the_best_epoch_is_that_of_what_is_kept():
    for average, dev, best in (
        ("none", [1], "validation_accuracy"),
        ("moving", [1], "validation_averaged_accuracy"),
        ("moving", [], None),
    ):
        *_, checkpoints = built_of_steering(dev, average__name=average)
        assert checkpoints.monitor == best
        assert building.has_best(configured(average__name=average), dev) == (best is not None)


def test_the_figure_that_chooses_an_epoch_is_an_option():
    options = {"train__patience": 3, "train__best": "loss"}
    *_, stopping, _, _, checkpoints = built_of_steering(**options)
    assert (
        (stopping.monitor, stopping.mode)
        == (checkpoints.monitor, checkpoints.mode)
        == ("validation_loss", "min")
    )
    *_, checkpoints = built_of_steering(train__best="f1", train__metrics='["f1"]', average__name="moving")
    assert (checkpoints.monitor, checkpoints.mode) == ("validation_averaged_f1", "max")
    assert built_of_steering(train__best="last")[-1].monitor is None
    assert next(
        c for c in built_of_steering(train__best="last", average__name="moving") if hasattr(c, "keep")
    ).keep
    with pytest.raises(
        UnknownNameError, match=r"train.best: expected auto, last or a figure of loss, accuracy"
    ):
        built_of_steering(train__best="f1")


@pytest.mark.parametrize(
    "options, factors",
    [
        (ScheduleOptions(name="step", every=2, factor=0.5), [1, 1, 0.5, 0.5]),
        (ScheduleOptions(name="exponential", factor=0.5), [1, 0.5, 0.25, 0.125]),
        (ScheduleOptions(name="cosine", end=0.5), [1, 0.926777, 0.75, 0.573223]),
        (ScheduleOptions(warm_up=2), [0.1, 0.55, 1, 1]),
    ],
)
def test_schedules_count_epochs(options, factors):
    """Here of ten steps each, of which the first is looked at."""
    schedule = building._rate(options, 10, 40)
    assert [schedule(10 * epoch) for epoch in range(4)] == pytest.approx(factors, rel=1e-5)


def test_what_decides():
    assert [metric.name for metric in building.metrics_of("nodes")] == ["accuracy", "node_accuracy"]
    assert [metric.name for metric in building.metrics_of("number")] == ["mse"]
    assert building.deciding_figure(configured(), "number", [1]) == "validation_mse"
    figures = {*building.METRICS, *building.NUMBER_METRICS, "loss"} - {"confusion"}
    less = {name for name in figures if mode_of("", f"validation_averaged_{name}") == "min"}
    assert less == {"loss", "perplexity", "calibration_error", "mse", "mae"}
    every = ["accuracy", "f1", "confusion", "top3", "perplexity"]
    assert [metric.name for metric in building.metrics_of("class", every)] == every
    with pytest.raises(
        UnknownNameError, match=r"train.metrics: expected figures of the task number: mse, mae"
    ):
        building.metrics_of("number", ["f1"])


@pytest.mark.parametrize(
    ("kind", "weights"),
    [("nodes", (6 / 4, 6 / 8)), ("root", (3 / 2, 3 / 4)), ("class", (4 / 3, 4 / 6, 4 / 3))],
)
def test_balanced_classes_count_alike(kind, weights):
    texts = ["(1 (0 bad) (1 film))", "(1 fine)", "(0 good)", "(-1 (1 so) (-1 odd))"]
    examples = [fb.trees.parse_brackets(text, labels=int) for text in texts]
    if kind == "class":
        examples = list(zip(examples, [0, 1, 1, 2], strict=True))
    aside = ("odd",) if kind == "class" else ()
    dataset = Dataset(examples, [], [], kind, ("bad", "good"), aside)
    balanced = configured(task__balanced="true")
    assert building._task(balanced.task, dataset).weights == pytest.approx(weights)
    with pytest.raises(TrainingError, match="task.balanced: expected no task.weights beside it"):
        building._task(configured(task__balanced="true", task__weights="[1,2]").task, dataset)
