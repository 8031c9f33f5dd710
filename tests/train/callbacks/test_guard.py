"""NaNGuard: what is not finite is named, and no parameter has changed."""

from __future__ import annotations

import math

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.pending import Pending
from foldbatch.errors import ParameterError, TrainingError
from foldbatch.train import NaNGuard, Trainer
from foldbatch.train.shares import Batch
from tests.engines.cuda.emulated import needs_compiler
from tests.train.callbacks.tiny import Fake

pytestmark = pytest.mark.filterwarnings("ignore::foldbatch.errors.NotFiniteWarning")
GOOD, BAD = {"a": 4, "b": 1}, {"a": 0, "b": 1}


def program(function=lambda a, b: b / a):
    w = fb.Parameter([], init=1.0, name="w")
    ratio = fb.Record({"a": fb.Scalar(), "b": fb.Scalar()}) >> fb.Function(lambda a, b: w * function(a, b))
    return fb.compile(ratio >> fb.Loss())


@pytest.mark.parametrize("every", [None, 2])
def test_the_example_has_its_number_in_the_training_set(every):
    made = Trainer(program(), fb.SGD(0.0001), batch=2, seed=1, callbacks=[NaNGuard(every)])
    with pytest.raises(TrainingError, match=r"model at example 7: divide \(forward\) yields .* inf") as error:
        made.fit([*[GOOD] * 7, BAD], epochs=1)
    step = int(error.value.where.removeprefix("step "))
    assert made.steps >= step - 1  # a device is asked later
    good = Trainer(program(), fb.SGD(0.0001))
    for _ in range(step - 1):
        good.step([GOOD] * 2)
    np.testing.assert_array_equal(made.program.params["w"], good.program.params["w"])


def test_a_gradient_alone_is_enough():
    w = fb.Parameter([], init=0.0, name="w")
    root = fb.Scalar() >> fb.Function(lambda x: fb.ops.sqrt(w * x)) >> fb.Loss()
    made = Trainer(fb.compile(root), fb.SGD(0.1), callbacks=[NaNGuard()])
    with pytest.raises(
        TrainingError, match="step 1: .* at example 0: .*(backward).* the gradient of w is not finite"
    ):
        made.fit([1.0], epochs=1)
    assert made.program.params["w"] == 0


class OnDevice(Fake):
    """Losses that are read later; the second of three steps was not finite."""

    def __init__(self, callback):
        super().__init__(callback)
        self.program = program()
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


@pytest.mark.parametrize("every", [None, 1, 4])
@pytest.mark.parametrize("backend", ["numpy", pytest.param("cuda-on-cpu", marks=needs_compiler)])
def test_a_gradient_in_the_middle_of_a_training_is_named(backend, every):
    w = fb.Parameter([], init=0.0, name="w")
    fields = fb.Record({"x": fb.Scalar(), "a": fb.Scalar()})
    root = fields >> fb.Function(lambda x, a: fb.ops.sqrt(w * x + a)) >> fb.Loss()
    still, steep = {"x": 0, "a": 1}, {"x": 1, "a": 0}  # gradients 0 and infinity; the losses are finite
    made = Trainer(fb.compile(root, backend), fb.SGD(0.1), batch=1, callbacks=[NaNGuard(every)])
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


def test_all_pending_losses_are_read_every_few_steps():
    fake = OnDevice(NaNGuard(3))
    fake.step(1.0, [GOOD])
    fake.step(math.inf, [GOOD, BAD])
    assert fake.reads == 0
    with pytest.raises(TrainingError, match=r"step 2: .* at example 11: divide"):
        fake.step(math.inf, [BAD])
    assert fake.reads == 2


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


def test_what_cannot_be_found_again_is_still_refused():
    fake = OnDevice(NaNGuard(1))
    with pytest.raises(TrainingError, match=r"step 1: .* found a NaN or an infinity; this step changed no"):
        fake.step(math.nan, [GOOD])


def test_settings_are_checked():
    with pytest.raises(TrainingError, match="NaNGuard every: expected 1 step or more"):
        NaNGuard(0)
