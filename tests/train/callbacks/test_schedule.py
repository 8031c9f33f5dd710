"""Schedule: the rate of every step is base times factor, also after training was cut off."""

from __future__ import annotations

import pytest

from foldbatch.errors import TrainingError
from foldbatch.train import Callback, Schedule
from foldbatch.train.schedules import chained, constant, cosine, stepwise, warm_up
from tests.train.callbacks.tiny import EXAMPLES, assert_same, run_in_two, trainer


class Rates(Callback):
    def __init__(self):
        self.rates = []

    def on_gradients(self, trainer):
        self.rates.append(trainer.optimizer.lr)


def test_steps_are_counted_over_all_epochs():
    rates = Rates()
    schedule = warm_up(5, 0.5)
    made = trainer(Schedule(schedule), rates, lr=0.1)
    made.fit(EXAMPLES, epochs=2)
    made.fit(EXAMPLES, epochs=3)
    assert rates.rates == [0.1 * schedule(step) for step in range(9)]
    assert made.history[0]["lr"] == rates.rates[2]


def test_a_base_of_one_makes_factors_rates_and_zero_is_almost_reached():
    rates = Rates()
    trainer(Schedule(chained([constant(0.25), constant(0.0)], [1]), "epoch", lr=1.0), rates).fit(
        EXAMPLES, epochs=2
    )
    assert rates.rates == [0.25] * 3 + [1e-12] * 3


def test_the_rate_is_written_where_the_factor_changes():
    class Halve(Callback):
        def on_epoch_end(self, trainer):
            trainer.optimizer.lr /= 2

    rates = Rates()
    trainer(Schedule(stepwise(4)), Halve(), rates, lr=0.1).fit(EXAMPLES, epochs=2)
    assert rates.rates == pytest.approx([0.1] * 3 + [0.05] + [0.01] * 2)


@pytest.mark.parametrize("every", ["step", "epoch"])
def test_a_resumed_run_is_the_unbroken_one(every):
    assert_same(*run_in_two(lambda: trainer(Schedule(cosine(30 if every == "step" else 9), every))))


def test_settings_are_checked():
    with pytest.raises(TrainingError, match="'step' or 'epoch'"):
        Schedule(constant(), "batch")
    with pytest.raises(TrainingError, match="Schedule lr: expected a number above 0"):
        Schedule(constant(), lr=0)
