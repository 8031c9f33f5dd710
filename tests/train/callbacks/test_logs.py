"""What a person reads of a training."""

import io
import json
import sys

import numpy as np

from foldbatch.engines.pending import Pending
from foldbatch.train import Confusion, CSVLog, JSONLinesLog, Progress
from foldbatch.train.parallel import Batch
from foldbatch.train.resuming import Position
from tests.train.callbacks.tiny import Fake
from tests.train.small import EXAMPLES, trainer


def fake_run(callback, *epochs):
    fake = Fake(callback)
    callback.on_fit_start(fake)
    for figures in epochs:
        fake.run_epoch(**figures)
    callback.on_fit_end(fake)
    return fake


def test_a_table_has_a_column_a_number(tmp_path):
    epochs = (
        {"loss": 0.5, "f1": {"bad": 1.0, "good": 0.25}, "table": [[1]]},
        {"loss": float("nan"), "late": 2},
    )
    fake_run(CSVLog(tmp_path / "new" / "log.csv"), *epochs)
    expected = "epoch,loss,f1/bad,f1/good,late\n1,0.5,1.0,0.25,\n2,nan,,,2\n"
    assert (tmp_path / "new" / "log.csv").read_text() == expected


def test_json_lines_have_an_object_an_epoch(tmp_path):
    epochs = (
        {"loss": 0.5, "f1": {"bad": 1.0}, "table": np.array([[1, 2]])},
        {"loss": float("nan"), "late": np.float32(0.5)},
    )
    fake_run(JSONLinesLog(tmp_path / "new" / "log.jsonl"), *epochs)
    lines = (tmp_path / "new" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"epoch": 1, "loss": 0.5, "f1": {"bad": 1.0}, "table": [[1, 2]]},
        {"epoch": 2, "loss": None, "late": 0.5},
    ]


def test_json_lines_are_the_history_and_a_resumed_training_makes_no_epoch_twice(tmp_path):
    path = tmp_path / "log.jsonl"
    for epochs in (1, 3):
        made = trainer(tmp_path / "run", callbacks=[JSONLinesLog(path)])
        made.metrics = [*made.metrics, Confusion("out")]
        made.fit(EXAMPLES[:4], EXAMPLES[:4], epochs=epochs, resume=True)
    assert [json.loads(line) for line in path.read_text().splitlines()] == made.history
    assert [figures["epoch"] for figures in made.history] == [1, 2, 3]
    assert made.history[-1]["validation_confusion"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(callback, losses=(4.0, 2.0), stopped=None):
    fake = Fake(callback)
    callback.on_fit_start(fake)
    for _ in range(2):
        fake.epochs, fake.batches, fake.position = 3, 4, Position(batches=1)
        callback.on_epoch_start(fake)
        for loss in losses:
            fake.steps += 1
            fake.batch = Batch([0, 1], ["a", "b"], loss)
            callback.on_step_end(fake)
        fake.epoch += 1
        fake.figures = {
            "epoch": fake.epoch,
            "loss": 1.25,
            "table": [[1]],
            "validation_f1": 0.98765,
            "seconds": 2.04,
        }
        callback.on_epoch_end(fake)
    fake.stopped = stopped
    callback.on_fit_end(fake)
    callback.on_step_end(fake)  # outside of fit


LINES = [f"epoch {n}/3  loss/example 1.25  validation_f1 0.9877  2.0 s" for n in (1, 2)]


def test_a_pipe_gets_a_line_an_epoch(capsys):
    run(Progress(), stopped="time is over")
    shown = capsys.readouterr()
    assert shown.err.splitlines() == [*LINES, "stopped: time is over"]
    assert shown.out == ""


def test_without_standard_error_nothing_is_shown(monkeypatch, capsys):
    """As in a service whose outputs are closed."""
    monkeypatch.setattr(sys, "stderr", None)
    run(Progress())
    run(Progress("bar"))
    trainer().fit(EXAMPLES[:4], EXAMPLES[:4], epochs=1)
    assert capsys.readouterr().out == ""


def test_a_terminal_gets_a_bar_above_which_lines_stay(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    run(Progress(file=file))
    text = file.getvalue()
    assert all(f"{line}\n" in text for line in LINES)
    assert "\x1b[" in text
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")  # the cursor is back


def test_a_loss_on_a_device_is_not_waited_for(capsys):
    def read():
        raise AssertionError

    run(Progress("bar"), [Pending(read)])
    run(Progress("lines"), [Pending(read)])
