"""Ends of training: by patience and by time; the best parameters come back."""

from __future__ import annotations

import time

import numpy as np
import pytest

from foldbatch.errors import TrainingError, UnknownNameError
from foldbatch.train import Callback, EarlyStopping, TimeLimit
from tests.train.callbacks.tiny import DEV, EXAMPLES, Fake, assert_same, run_in_two, through_json, trainer


def test_patience_is_counted_from_the_best_epoch():
    fake = Fake(EarlyStopping("dev_f1", "max", patience=2, min_delta=0.1))
    stops = []
    for value in [0.2, 0.25, 0.35, 0.4, float("nan"), 0.9]:
        fake.run_epoch(dev_f1=value)
        stops.append(fake.stopped is not None)
    assert stops == [False, False, False, False, True, True]
    assert (fake.callback.best, fake.callback.best_epoch) == (0.9, 6)
    assert fake.stopped == "dev_f1 got no better than 0.35 of epoch 3 for 2 epochs"


def test_a_figure_that_is_not_there_is_named():
    with pytest.raises(
        UnknownNameError, match=r"EarlyStopping: expected a figure of epoch, loss, found 'dev_loss'"
    ):
        Fake(EarlyStopping("dev_loss", "min")).run_epoch(loss=1.0)


class Keep(Callback):
    def __init__(self):
        self.kept = []

    def on_epoch_end(self, trainer):
        self.kept.append({name: np.array(array) for name, array in trainer.program.params.items()})


def test_the_best_parameters_come_back_at_the_end():
    keep = Keep()
    stopping = EarlyStopping("dev_loss", "max", patience=2, restore=True)  # it falls, so the first is best
    made = trainer(keep, stopping)
    assert len(made.fit(EXAMPLES, DEV, epochs=9)) == 3
    for name, array in keep.kept[0].items():
        np.testing.assert_array_equal(made.program.params[name], array)
    assert made.evaluate(DEV)["loss"] == made.history[0]["dev_loss"]


def test_a_fit_that_is_cut_off_restores_nothing():
    class Interrupt(Callback):
        def on_step_end(self, trainer):
            if trainer.steps == 5:
                raise KeyboardInterrupt

    made = trainer(EarlyStopping("dev_loss", "max", restore=True), Interrupt())
    with pytest.raises(KeyboardInterrupt):
        made.fit(EXAMPLES, DEV, epochs=9)
    assert made.evaluate(DEV)["loss"] != made.history[0]["dev_loss"]


@pytest.mark.parametrize("cut", [1, 2])
def test_a_resumed_run_is_the_unbroken_one(cut):
    def make():
        return trainer(EarlyStopping("dev_loss", "max", patience=3, restore=True))

    whole, resumed = run_in_two(make, cut=cut)
    assert_same(whole, resumed)
    assert len(whole.history) == 4
    assert resumed.stopped == whole.stopped
    resumed.fit(EXAMPLES, DEV, epochs=9)
    assert len(resumed.history) == 4


def test_time_is_over_in_both_parts_of_a_run(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    first = Fake(TimeLimit(3.5))
    first.callback.on_fit_start(first)
    first.run_epoch()
    first.run_epoch()
    assert first.stopped is None
    second = Fake(TimeLimit(3.5))
    second.callback.load_state(through_json(first.callback.state()))  # the clock is read: 3 seconds
    second.callback.on_fit_start(second)
    second.run_epoch()
    assert second.stopped == "3.5 seconds are over"
    second.stopped = None
    second.callback.on_fit_start(second)
    assert second.stopped


def test_settings_are_checked():
    with pytest.raises(TrainingError, match="'min' or 'max', found 'auto'"):
        EarlyStopping("loss", "auto")
    with pytest.raises(TrainingError, match="1 epoch or more"):
        EarlyStopping("loss", "min", patience=0)
    with pytest.raises(TrainingError, match="TimeLimit seconds"):
        TimeLimit(0)
