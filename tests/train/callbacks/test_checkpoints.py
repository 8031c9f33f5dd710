"""Checkpoints: a training that is killed anywhere and resumed is the unbroken one, to the last bit."""

import os
import signal

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import ReadError, TrainingError
from foldbatch.program import read_notes
from foldbatch.system.files import LOCK
from foldbatch.train import Callback, Checkpoints
from foldbatch.train.resuming import read_state
from tests.train import small
from tests.train.small import DEV, EXAMPLES, assert_same, trainer


class Killed(BaseException):
    """Stands for the end of a process: nothing may be done about it."""


class KillAt(Callback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, trainer):
        if trainer.steps == self.step:
            raise Killed


class SignalAt(Callback):
    def __init__(self, step, number):
        self.step, self.number = step, number

    def on_step_start(self, trainer):
        if trainer.steps == self.step:
            os.kill(os.getpid(), self.number)


def unbroken(epochs=4, **options):
    whole = trainer(**options)
    whole.fit(EXAMPLES, DEV, epochs=epochs)
    return whole


@pytest.mark.parametrize(("backend", "threads"), [("numpy", 1), ("numpy", 2), ("llvm", 1), ("llvm", 2)])
def test_a_resumed_training_is_the_unbroken_one(tmp_path, backend, threads):
    if backend == "llvm":
        pytest.importorskip("llvmlite")
    options = {"backend": backend, "threads": threads}
    whole = unbroken(**options)
    for step in (3, 8, 12):  # batches of 5 an epoch: within epochs, again and again
        with pytest.raises(Killed):
            trainer(tmp_path, every=1, callbacks=[KillAt(step + 1)], **options).fit(
                EXAMPLES, DEV, epochs=4, resume=True
            )
    resumed = trainer(tmp_path, every=2, **options)
    resumed.fit(iter(EXAMPLES), DEV, epochs=4, resume=True)
    assert_same(whole, resumed)


def test_a_training_that_is_over_is_resumed_to_train_more(tmp_path):
    trainer(tmp_path).fit(EXAMPLES, DEV, epochs=2)
    again = trainer(tmp_path)
    again.fit(EXAMPLES, DEV, epochs=2, resume=True)
    assert again.steps == 10
    again.fit(EXAMPLES, DEV, epochs=4, resume=tmp_path / "last.safetensors")
    assert_same(unbroken(), again)


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_ends_a_fit_with_a_checkpoint_of_the_last_step(tmp_path, number, error):
    with pytest.raises(error) as raised:
        trainer(tmp_path, callbacks=[SignalAt(7, number)]).fit(EXAMPLES, DEV, epochs=4)
    assert getattr(raised.value, "code", 143) == 143
    assert read_state(tmp_path / "last.safetensors")["steps"] == 8
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed = trainer(tmp_path)
    resumed.fit(EXAMPLES, DEV, epochs=4, resume=True)
    assert_same(unbroken(), resumed)


def test_a_signal_while_the_dev_set_is_evaluated_loses_nothing(tmp_path):
    interrupted = trainer(tmp_path)
    evaluate = interrupted._evaluate

    def slow(examples, between):
        if interrupted.epoch == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return evaluate(examples, between)

    interrupted._evaluate = slow
    with pytest.raises(KeyboardInterrupt):
        interrupted.fit(EXAMPLES, DEV, epochs=4)
    assert len(interrupted.history) == 1
    assert interrupted.steps == read_state(tmp_path / "last.safetensors")["steps"] == 10
    resumed = trainer(tmp_path)
    resumed.fit(EXAMPLES, DEV, epochs=4, resume=True)
    assert_same(unbroken(), resumed)


def test_the_best_parameters_come_back(tmp_path):
    kept, seen = [], Checkpoints(tmp_path, monitor="validation_loss", keep=2)

    class Keep(Callback):
        def on_epoch_end(self, trainer):
            kept.append({name: np.array(a) for name, a in trainer.program.params.items()})

    made = trainer(callbacks=[seen, Keep()], optimizer=fb.SGD(3.0))
    made.fit(EXAMPLES, DEV, epochs=6)
    losses = [each["validation_loss"] for each in made.history]
    best = int(np.argmin(losses))
    assert best < 5  # or the test would show nothing
    assert (seen.best_epoch, seen.best_figure) == (best + 1, losses[best])
    made.restore_best()
    for name, array in kept[best].items():
        np.testing.assert_array_equal(made.program.params[name], array)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        LOCK,
        "best.safetensors",
        "epoch-0005.safetensors",
        "epoch-0006.safetensors",
        "last.safetensors",
    ]


def test_the_best_program_can_be_loaded_without_the_training(tmp_path):
    made = trainer(tmp_path)
    made.fit(EXAMPLES, DEV, epochs=2)
    made.restore_best()
    loaded = fb.load(tmp_path / "best.safetensors", "numpy")
    np.testing.assert_array_equal(loaded.run(DEV), made.program.run(DEV))
    assert read_notes(tmp_path / "best.safetensors")["figure"] == "validation_loss"
    other = trainer(tmp_path, program=fb.compile(small.model(3), "numpy"))
    with pytest.raises(TrainingError, match="best parameters of this model, found those of another"):
        other.restore_best()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"program": fb.compile(small.model(3), "numpy")}, "another model here"),
        ({"program": fb.compile(small.model(), "numpy", seed=1)}, "another model here"),
        ({"optimizer": fb.SGD(0.1)}, "optimizer Adam in the checkpoint, SGD here"),
        ({"seed": 4}, "sampler of seed 3 .* of seed 4"),
        ({"batch_size": 5}, "sampler of seed 3"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(tmp_path, change, found):
    trainer(tmp_path).fit(EXAMPLES, DEV, epochs=1)
    other = trainer(tmp_path, **change)
    before = {name: np.array(array) for name, array in other.program.params.items()}
    with pytest.raises(TrainingError, match=rf"last.safetensors: expected .*, found {found}"):
        other.fit(EXAMPLES, DEV, epochs=2, resume=True)
    assert (other.epoch, other.history) == (0, [])
    for name, array in before.items():
        np.testing.assert_array_equal(other.program.params[name], array)


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    trainer(tmp_path).fit(EXAMPLES, DEV, epochs=1)
    with pytest.raises(TrainingError, match="number of examples 20 in the checkpoint, 19 here"):
        trainer(tmp_path).fit(EXAMPLES[1:], DEV, epochs=2, resume=True)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    trainer(tmp_path).fit(EXAMPLES, DEV, epochs=1)
    path = tmp_path / "last.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ReadError, match="damaged.*; delete it"):
        trainer(tmp_path).fit(EXAMPLES, DEV, epochs=2, resume=True)
    with pytest.raises(FileNotFoundError):
        trainer().fit(EXAMPLES, DEV, epochs=2, resume=tmp_path / "none.safetensors")


def test_what_a_killed_process_left_is_removed(tmp_path):
    for name in (".last.safetensors.0a.partial", ".epoch-0003.safetensors.0b.partial", ".mine.partial"):
        (tmp_path / name).write_bytes(b"half")
    trainer(tmp_path).fit(EXAMPLES, DEV, epochs=1, resume=True)
    names = [LOCK, ".mine.partial", "best.safetensors", "last.safetensors"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_two_trainings_in_one_folder_are_refused(tmp_path):
    """Also one that would resume; the first goes on, and when it has ended or failed, another may begin."""

    def begin_another(made):
        if made.steps == 3:
            for resume in (False, True):
                with pytest.raises(TrainingError, match="a folder that no other training writes to"):
                    trainer(tmp_path).fit(EXAMPLES, DEV, epochs=1, resume=resume)

    first = trainer(tmp_path, callbacks=[fb.train.LambdaCallback(on_step_end=begin_another), KillAt(17)])
    with pytest.raises(Killed):
        first.fit(EXAMPLES, DEV, epochs=4)
    resumed = trainer(tmp_path)
    resumed.fit(EXAMPLES, DEV, epochs=4, resume=True)
    assert_same(unbroken(), resumed)
