"""Metrics, schedules and early stopping of configurations."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from foldbatch.errors import BackendError, UnknownNameError
from foldbatch.recipes.data import Dataset
from foldbatch.recipes.settings import ScheduleOptions
from foldbatch.recipes.steering import _schedule, build_callbacks, deciding_figure, has_best, metrics_of
from tests.recipes.test_data import configured


def built(dev=(1,), kind="class", **options):
    dataset = Dataset([1], list(dev), [], kind, ("a", "b"))
    return build_callbacks(configured(**options), dataset, 10, Path("run"))


def names(dev=(1,), **options):
    return [type(callback).__name__ for callback in built(dev, **options)]


def test_callbacks_suit_the_options():
    assert names() == ["NaNGuard", "CSVLog", "Progress", "Checkpoints"]
    assert names(schedule__name="cosine")[1] == "Schedule"
    assert names(schedule__name="plateau")[1] == "ReduceOnPlateau"
    assert "ReduceOnPlateau" not in names(schedule__name="plateau", dev=())
    assert names(optimizer__clip=5, average__name="moving", train__patience=2)[:4] == [
        "NaNGuard",
        "ClipGradients",
        "AverageWeights",
        "EarlyStopping",
    ]


def test_the_best_epoch_is_that_of_what_is_kept():
    for average, dev, best in (
        ("none", [1], "dev_accuracy"),
        ("moving", [1], "dev_averaged_accuracy"),
        ("epochs", [1], None),
        ("moving", [], None),
    ):
        *_, checkpoints = built(dev, average__name=average)
        assert checkpoints.figure == best
        assert has_best(configured(average__name=average), dev) == (best is not None)


def test_the_figure_that_chooses_an_epoch_is_an_option():
    options = {"train__patience": 3, "train__best": "loss"}
    *_, stopping, _, _, checkpoints = built(**options)
    assert (stopping.figure, stopping.mode) == (checkpoints.figure, checkpoints.mode) == ("dev_loss", "min")
    *_, checkpoints = built(train__best="f1", train__metrics='["f1"]', average__name="moving")
    assert (checkpoints.figure, checkpoints.mode) == ("dev_averaged_f1", "max")
    assert built(train__best="last")[-1].figure is None
    assert next(c for c in built(train__best="last", average__name="moving") if hasattr(c, "keep")).keep
    with pytest.raises(
        UnknownNameError, match=r"train.best: expected auto, last or a figure of loss, accuracy"
    ):
        built(train__best="f1")


def test_plots_and_events_are_options():
    pytest.importorskip("matplotlib", reason="draws")
    pytest.importorskip("tensorboardX", reason="writes events")
    made = built(train__plots="true", train__tensorboard="true")
    assert [type(callback).__name__ for callback in made[-3:]] == ["Plots", "TensorBoardLog", "Checkpoints"]
    assert made[-3].classes == ("a", "b")


@pytest.mark.parametrize("option, library", [("plots", "matplotlib"), ("tensorboard", "tensorboardX")])
def test_a_library_that_is_missing_is_named(option, library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setitem(sys.modules, f"{library}.figure", None)
    with pytest.raises(BackendError, match=f"expected {library} to be installed"):
        built(**{f"train__{option}": "true"})


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
    schedule = _schedule(options, 10, 40)
    assert [schedule(10 * epoch) for epoch in range(4)] == pytest.approx(factors, rel=1e-5)


def test_what_decides():
    assert [metric.name for metric in metrics_of("nodes")] == ["accuracy", "node_accuracy"]
    assert [metric.name for metric in metrics_of("number")] == ["mse"]
    assert deciding_figure(configured(), "number", [1]) == ("dev_mse", "min")
    every = ["accuracy", "f1", "confusion", "top3", "perplexity"]
    assert [metric.name for metric in metrics_of("class", every)] == every
    with pytest.raises(
        UnknownNameError, match=r"train.metrics: expected figures of the task number: mse, mae"
    ):
        metrics_of("number", ["f1"])
