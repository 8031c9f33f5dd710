"""Learning rates and the end of a training, and when callbacks are called."""

from functools import partial

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import train
from foldbatch.errors import TrainingError, UnknownNameError
from foldbatch.train.schedules import stepwise, warm_up
from tests.train.callbacks.tiny import DEV, EXAMPLES, Fake, assert_same, trainer, without_seconds


def test_patience_is_counted_from_the_best_epoch():
    fake = Fake(train.EarlyStopping("validation_f1", "max", patience=2, min_delta=0.1))
    stops = []
    for value in [0.2, 0.25, 0.35, 0.4, float("nan"), 0.9]:
        fake.run_epoch(validation_f1=value)
        stops.append(fake.stopped is not None)
    assert stops == [False, False, False, False, True, True]
    assert (fake.callback.best, fake.callback.best_epoch) == (0.9, 6)
    assert fake.stopped == "validation_f1 got no better than 0.35 of epoch 3 for 2 epochs"


def test_a_figure_whose_name_says_no_direction_names_its_callback():
    for make in (train.EarlyStopping, partial(train.Checkpoints, "folder")):
        name = getattr(make, "__name__", "Checkpoints")
        with pytest.raises(TrainingError, match=f"{name} monitor: expected a name with one of loss, error"):
            make(monitor="figure")


def test_a_figure_that_is_not_there_is_named():
    with pytest.raises(
        UnknownNameError, match=r"EarlyStopping: expected a figure of epoch, loss, found 'validation_loss'"
    ):
        Fake(train.EarlyStopping("validation_loss", "min")).run_epoch(loss=1.0)


VALUES = np.random.default_rng(4).integers(0, 40, 60) / 8 + np.linspace(9, 0, 60)


def rates(callback, values):
    fake = Fake(callback)
    made = []
    for value in values:
        fake.run_epoch(validation_loss=float(value))
        made.append(fake.optimizer.lr)
    return made


def test_the_rate_falls_after_patience():
    callback = train.ReduceLROnPlateau("validation_loss", "min", factor=0.5, patience=1, min_lr=0.03)
    assert rates(callback, [1, 1, 1, 0.5, 0.6, 0.6, 0.6, 0.6]) == [0.1] * 2 + [0.05] * 3 + [0.03] * 3


@pytest.mark.parametrize("mode", ["min", "max"])
def test_rates_are_torchs(mode):
    torch = pytest.importorskip("torch", reason="needs torch")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    options = {"factor": 0.5, "patience": 2, "min_lr": 1e-3}
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode, threshold=0.5, threshold_mode="abs", eps=0, **options
    )
    expected = []
    for value in VALUES:
        theirs.step(value)
        expected.append(optimizer.param_groups[0]["lr"])
    assert (
        rates(train.ReduceLROnPlateau("validation_loss", mode, min_delta=0.5, **options), VALUES) == expected
    )
    assert len(set(expected)) > 3


class Rates(train.Callback):
    def __init__(self):
        self.rates = []

    def on_gradients(self, trainer):
        self.rates.append(trainer.optimizer.lr)


def test_steps_are_counted_over_all_epochs():
    rates = Rates()
    schedule = warm_up(5, 0.5)
    made = trainer(train.Schedule(schedule), rates, lr=0.1)
    made.fit(EXAMPLES, epochs=2)
    made.fit(EXAMPLES, epochs=3)
    assert rates.rates == [0.1 * schedule(step) for step in range(9)]
    assert made.history[0]["lr"] == rates.rates[2]


def test_a_base_of_one_makes_factors_rates_and_zero_is_almost_reached():
    rates = Rates()
    trainer(train.Schedule(lambda epoch: 0.25 * (epoch < 1), "epoch", lr=1.0), rates).fit(EXAMPLES, epochs=2)
    assert rates.rates == [0.25] * 3 + [1e-12] * 3


@pytest.mark.parametrize("factor", [-1.0, float("nan"), "half", None])
def test_what_no_rate_can_be_multiplied_by_is_refused(factor):
    with pytest.raises(TrainingError, match="Schedule at step 0: expected a number of 0 or more, found"):
        trainer(train.Schedule(lambda step: factor)).fit(EXAMPLES, epochs=1)


def test_the_rate_is_written_where_the_factor_changes():
    class Halve(train.Callback):
        def on_epoch_end(self, trainer):
            trainer.optimizer.lr /= 2

    rates = Rates()
    trainer(train.Schedule(stepwise(4)), Halve(), rates, lr=0.1).fit(EXAMPLES, epochs=2)
    assert rates.rates == pytest.approx([0.1] * 3 + [0.05] + [0.01] * 2)


def test_only_the_moments_named_are_called():
    seen = []
    fake = Fake(train.LambdaCallback(on_epoch_end=lambda trainer: seen.append(trainer.epoch)))
    fake.run_epoch()
    fake.run_epoch()
    assert seen == [1, 2]


def all_callbacks(folder, killed_at=None):
    def kill(trainer):
        if trainer.steps == killed_at:
            raise SystemError

    return [
        train.NaNGuard(),
        train.ClipGradients(1.0),
        train.Schedule(fb.train.schedules.one_cycle(20)),
        train.AverageWeights(0.9, validation=DEV),
        train.ReduceLROnPlateau("validation_loss", "min", patience=1),
        train.EarlyStopping("validation_averaged_loss", "min"),
        train.CSVLog(folder / "log.csv"),
        train.Checkpoints(folder, every=2, monitor="validation_averaged_accuracy"),
        train.LambdaCallback(on_step_start=kill),
    ]


def test_all_callbacks_together_resume_to_the_bit(tmp_path):
    def run(name, killed_at=None, *, resume=False):
        made = trainer(
            *all_callbacks(tmp_path / name, killed_at),
            metrics=[train.Accuracy("out"), train.Confusion("out")],
        )
        made.fit(EXAMPLES, DEV, epochs=4, resume=resume)
        return made

    whole = run("whole")
    for killed_at in (2, 3, 7, 9):  # within an epoch, between two, behind a checkpoint
        with pytest.raises(SystemError):
            run(str(killed_at), killed_at)
        assert_same(whole, run(str(killed_at), resume=True))
        logs = [(tmp_path / name / "log.csv").read_text() for name in ("whole", str(killed_at))]
        assert without_seconds(logs[0]) == without_seconds(logs[1])
