"""Averages, limits and guards."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.pending import Pending
from foldbatch.errors import ParameterError, TrainingError
from foldbatch.train import Accuracy, AverageWeights, Callback, Checkpoints, ClipGradients, NaNGuard, Trainer
from foldbatch.train.parallel import Batch
from tests.engines.cuda.emulated import needs_compiler
from tests.train.callbacks.tiny import DEV, EXAMPLES, Fake, program, trainer


class Keep(Callback):
    def __init__(self):
        self.steps, self.epochs = [], []

    def on_step_end(self, trainer):
        self.steps.append(np.array(trainer.program.params["out.weight"]))

    def on_epoch_end(self, trainer):
        self.epochs.append(np.array(trainer.program.params["out.weight"]))


def test_the_mean_of_late_epochs_stays_at_the_end():
    keep, average = Keep(), AverageWeights(start=1, validation=DEV)
    made = trainer(keep, average, metrics=[Accuracy("out")])
    figures = made.fit(EXAMPLES, DEV, epochs=4)
    np.testing.assert_allclose(made.program.params["out.weight"], np.mean(keep.epochs[1:], axis=0), rtol=1e-6)
    assert figures[0]["validation_averaged_loss"] == figures[0]["validation_loss"]  # there is no average yet
    assert figures[1]["validation_averaged_loss"] == figures[1]["validation_loss"]  # the mean of one
    assert (
        figures[3]["validation_averaged_loss"] == made.evaluate(DEV)["loss"] != figures[3]["validation_loss"]
    )
    assert figures[3]["validation_averaged_accuracy"] == made.evaluate(DEV)["accuracy"]


def test_the_moving_average_follows_steps_and_training_does_not_see_it():
    keep, plain, average = Keep(), Keep(), AverageWeights(0.25, validation=DEV, keep=False)
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


@pytest.mark.parametrize("start", [0, 4])
def test_the_mean_of_steps_is_that_of_all_steps_after_some(start):
    keep, average = Keep(), AverageWeights(every="step", start=start)
    made = trainer(keep, average)
    made.fit(EXAMPLES, epochs=3)
    np.testing.assert_allclose(
        made.program.params["out.weight"], np.mean(keep.steps[start:], axis=0), rtol=1e-6
    )


def test_a_moving_average_may_begin_at_a_step():
    keep, average = Keep(), AverageWeights(0.25, every="step", start=7, keep=False)
    trainer(keep, average).fit(EXAMPLES, epochs=3)
    expected = keep.steps[7]
    for step, weight in enumerate(keep.steps[8:], 2):
        decay = min(0.25, step / (step + 9))
        expected = decay * expected + (1 - decay) * weight
    np.testing.assert_allclose(average.averages["out.weight"], expected, rtol=1e-5)
    with pytest.raises(
        TrainingError, match="AverageWeights every: expected 'epoch' or 'step', found 'batch'"
    ):
        AverageWeights(every="batch")


def test_a_mean_of_steps_is_resumed(tmp_path):
    def made(folder):
        return trainer(AverageWeights(every="step", start=2), Checkpoints(folder, every=2))

    whole = made(tmp_path / "whole")
    whole.fit(EXAMPLES, epochs=3)
    made(tmp_path / "cut").fit(EXAMPLES, epochs=1)
    resumed = made(tmp_path / "cut")
    resumed.fit(EXAMPLES, epochs=3, resume=True)
    np.testing.assert_array_equal(resumed.program.params["out.weight"], whole.program.params["out.weight"])


def test_frozen_parameters_have_no_average():
    average = AverageWeights()
    made = trainer(average)
    made.program.params.parameters["out.bias"].trainable = False
    made.fit(EXAMPLES, epochs=1)
    assert set(average.averages) == set(program().params) - {"out.bias"}


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


class Norms(Callback):
    def __init__(self):
        self.norms = []

    def on_gradients(self, trainer):
        count, gradients = len(trainer.batch.examples), trainer.batch.gradients.values()
        self.norms.append(np.sqrt(sum(np.sum(np.square(np.asarray(g) / count)) for g in gradients)))


def test_the_norm_of_the_mean_is_limited():
    before, after = Norms(), Norms()
    trainer(before, ClipGradients(0.3), after).fit(EXAMPLES, epochs=1)
    np.testing.assert_allclose(after.norms, np.minimum(before.norms, 0.3), rtol=1e-6)
    assert min(before.norms) < 0.3 < max(before.norms)


def clipped(callback, **gradients):
    class Stands:
        batch = Batch([0, 1], ["a", "b"], 0.0, gradients)

    callback.on_gradients(Stands)
    return Stands.batch.gradients


pytestmark = pytest.mark.filterwarnings("ignore::foldbatch.errors.NotFiniteWarning")
GOOD, BAD = {"a": 4, "b": 1}, {"a": 0, "b": 1}


def ratios(function=lambda a, b: b / a):
    w = fb.Parameter([], init=1.0, name="w")
    ratio = fb.Record({"a": fb.Scalar(), "b": fb.Scalar()}) >> fb.Function(lambda a, b: w * function(a, b))
    return fb.compile(ratio >> fb.Loss())


def test_the_example_has_its_number_in_the_training_set():
    made = Trainer(ratios(), fb.SGD(0.0001), batch_size=2, seed=1, callbacks=[NaNGuard()])
    with pytest.raises(TrainingError, match=r"model at example 7: divide \(forward\) yields .* inf") as error:
        made.fit([*[GOOD] * 7, BAD], epochs=1)
    step = int(error.value.where.removeprefix("step "))
    assert made.steps >= step - 1  # a device is asked later
    good = Trainer(ratios(), fb.SGD(0.0001))
    for _ in range(step - 1):
        good.step([GOOD] * 2)
    np.testing.assert_array_equal(made.program.params["w"], good.program.params["w"])


class OnDevice(Fake):
    """Losses that are read later; the second of three steps was not finite."""

    def __init__(self, callback):
        super().__init__(callback)
        self.program = ratios()
        self.reads = 0

    def step(self, loss, examples, error=None):
        def read():
            self.reads += 1
            if error is not None:
                raise error
            return loss

        first = 10 * self.steps
        self.batch = Batch([first + i for i in range(len(examples))], examples, Pending(read), {})
        self.callback.on_gradients(self)
        self.steps += 1
        self.callback.on_step_end(self)


@pytest.mark.parametrize("backend", ["numpy", pytest.param("cuda-on-cpu", marks=needs_compiler)])
def test_a_gradient_in_the_middle_of_a_training_is_named(backend):
    w = fb.Parameter([], init=0.0, name="w")
    fields = fb.Record({"x": fb.Scalar(), "a": fb.Scalar()})
    root = fields >> fb.Function(lambda x, a: fb.ops.sqrt(w * x + a)) >> fb.Loss()
    still, steep = {"x": 0, "a": 1}, {"x": 1, "a": 0}  # gradients 0 and infinity; the losses are finite
    made = Trainer(fb.compile(root, backend), fb.SGD(0.1), batch_size=1, callbacks=[NaNGuard()])
    with pytest.raises(TrainingError, match=r" at example 5: .*the gradient of w is not finite") as error:
        made.fit([*[still] * 5, steep, *[still] * 4], epochs=1)
    step = int(error.value.where.removeprefix("step "))
    assert step - 1 <= made.steps <= step + 3  # the loss of the next step tells, two steps later
    assert made.program.params["w"] == 0


def test_pending_losses_are_read_two_steps_later():
    fake = OnDevice(NaNGuard())
    reads = []
    for _ in range(5):
        fake.step(1.0, [GOOD])
        reads.append(fake.reads)
    assert reads == [0, 0, 1, 2, 3]


@pytest.mark.parametrize("moment", ["on_epoch_end", "on_fit_end"])
def test_a_device_that_refused_an_update_is_asked_at_the_end(moment):
    fake = OnDevice(NaNGuard())
    refused = ParameterError("w gradient", "finite numbers", "nan")
    for examples, error in ([GOOD], None), ([GOOD], refused), ([BAD, GOOD], refused):
        fake.program._drawn += 7
        fake.step(1.0, examples, error)
    asked, find = [], fake.program.find_nan
    fake.program.find_nan = lambda examples, step: asked.append(step) or find(examples, step=step)
    with pytest.raises(TrainingError, match=r"step 3: .* at example 20: divide"):
        getattr(fake.callback, moment)(fake)
    assert asked == [7, 14, 21]  # with the random numbers of each step; the first one's update may be it
    fake.callback.on_fit_end(fake)  # said once
