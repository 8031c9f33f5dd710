"""Metrics, schedules and early stopping of configurations."""

from __future__ import annotations

import pytest

from foldbatch.recipes.settings import ScheduleOptions, Train
from foldbatch.recipes.steering import _schedule, build_callbacks, deciding_figure, metrics_of


def names(options, *, has_dev=True):
    return [type(c).__name__ for c in build_callbacks(options, Train(), "class", 10, has_dev=has_dev)]


def test_callbacks_suit_the_options():
    assert names(ScheduleOptions()) == ["EarlyStopping"]
    assert names(ScheduleOptions(), has_dev=False) == []
    assert names(ScheduleOptions(name="cosine")) == ["Schedule", "EarlyStopping"]
    assert names(ScheduleOptions(name="plateau")) == ["ReduceOnPlateau", "EarlyStopping"]


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
