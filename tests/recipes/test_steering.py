"""Metrics, schedules and early stopping of configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from foldbatch.recipes.settings import ScheduleOptions
from foldbatch.recipes.steering import _schedule, build_callbacks, deciding_figure, has_best, metrics_of
from tests.recipes.test_data import configured


def names(dev=(1,), **options):
    made = build_callbacks(configured(**options), "class", 10, list(dev), Path("run"))
    return [type(callback).__name__ for callback in made]


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
        configuration = configured(average__name=average)
        *_, checkpoints = build_callbacks(configuration, "class", 10, dev, Path("run"))
        assert checkpoints.figure == best
        assert has_best(configuration, dev) == (best is not None)


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
    assert deciding_figure("number") == ("dev_mse", "min")
