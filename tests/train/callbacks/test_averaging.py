"""AverageWeights: the mean of what was trained, evaluated, kept at the end, and resumed."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.errors import TrainingError
from foldbatch.train import Accuracy, AverageWeights, Callback
from foldbatch.train.callbacks import averaging
from tests.train.callbacks.tiny import DEV, EXAMPLES, assert_same, program, run_in_two, trainer


class Keep(Callback):
    def __init__(self):
        self.steps, self.epochs = [], []

    def on_step_end(self, trainer):
        self.steps.append(np.array(trainer.program.params["out.weight"]))

    def on_epoch_end(self, trainer):
        self.epochs.append(np.array(trainer.program.params["out.weight"]))


def test_the_mean_of_late_epochs_stays_at_the_end():
    keep, average = Keep(), AverageWeights(start=1, dev=DEV)
    made = trainer(keep, average, metrics=[Accuracy("out")])
    figures = made.fit(EXAMPLES, DEV, epochs=4)
    np.testing.assert_allclose(made.program.params["out.weight"], np.mean(keep.epochs[1:], axis=0), rtol=1e-6)
    assert figures[0]["dev_averaged_loss"] == figures[0]["dev_loss"]  # there is no average yet
    assert figures[1]["dev_averaged_loss"] == figures[1]["dev_loss"]  # the mean of one
    assert figures[3]["dev_averaged_loss"] == made.evaluate(DEV)["loss"] != figures[3]["dev_loss"]
    assert figures[3]["dev_averaged_accuracy"] == made.evaluate(DEV)["accuracy"]


def test_the_moving_average_follows_steps_and_training_does_not_see_it():
    keep, plain, average = Keep(), Keep(), AverageWeights(0.25, dev=DEV, keep=False)
    made = trainer(keep, average)
    made.fit(EXAMPLES, epochs=2)
    trainer(plain).fit(EXAMPLES, epochs=2)
    expected = keep.steps[0]
    for step, weight in enumerate(keep.steps[1:], 2):
        decay = min(0.25, step / (step + 9))  # 2 / 11 in the second step, then 0.25
        expected = decay * expected + (1 - decay) * weight
    np.testing.assert_allclose(average.averages["out.weight"], expected, rtol=1e-5)
    np.testing.assert_array_equal(keep.steps, plain.steps)
    np.testing.assert_array_equal(made.program.params["out.weight"], keep.steps[-1])


def test_frozen_parameters_have_no_average():
    average = AverageWeights()
    made = trainer(average)
    made.program.params.parameters["out.bias"].trainable = False
    made.fit(EXAMPLES, epochs=1)
    assert set(average.averages) == set(program().params) - {"out.bias"}


@pytest.mark.parametrize("decay", [None, 0.9])
def test_a_resumed_run_is_the_unbroken_one(decay):
    whole, resumed = run_in_two(lambda: trainer(AverageWeights(decay, start=1, dev=DEV)))
    assert_same(whole, resumed)
    assert "dev_averaged_loss" in whole.history[-1]


def test_a_fit_that_is_cut_off_keeps_its_parameters():
    class Interrupt(Callback):
        def on_step_end(self, trainer):
            if trainer.steps == 5:
                raise KeyboardInterrupt

    keep = Keep()
    made = trainer(keep, AverageWeights(0.5), Interrupt())
    with pytest.raises(KeyboardInterrupt):
        made.fit(EXAMPLES, epochs=3)
    np.testing.assert_array_equal(made.program.params["out.weight"], keep.steps[-1])


def test_long_arrays_are_averaged_in_blocks():
    average, target = np.zeros(2 * averaging.BLOCK + 5), np.arange(2.0 * averaging.BLOCK + 5)
    averaging._approach(average, target, 0.25)
    np.testing.assert_array_equal(average, target / 4)


def test_settings_are_checked():
    with pytest.raises(TrainingError, match="AverageWeights decay: expected a number between 0 and 1"):
        AverageWeights(1.0)
    with pytest.raises(TrainingError, match="0 epochs or more"):
        AverageWeights(start=-1)
