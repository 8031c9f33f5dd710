"""Progress: lines where nobody can see a bar, a bar where somebody can. No engine runs."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from foldbatch.engines.pending import Pending
from foldbatch.errors import UnknownNameError
from foldbatch.train import Progress
from foldbatch.train.resuming import Position
from foldbatch.train.shares import Batch
from tests.train.callbacks.tiny import Fake


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
        fake.figures = {"epoch": fake.epoch, "loss": 1.25, "table": [[1]], "dev_f1": 0.98765, "seconds": 2.04}
        callback.on_epoch_end(fake)
    fake.stopped = stopped
    callback.on_fit_end(fake)
    callback.on_step_end(fake)  # outside of fit


LINES = [f"epoch {n}/3  loss 1.25  dev_f1 0.9877  2.0 s" for n in (1, 2)]


def test_a_pipe_gets_a_line_an_epoch(capsys):
    run(Progress(), stopped="time is over")
    shown = capsys.readouterr()
    assert shown.err.splitlines() == [*LINES, "stopped: time is over"]
    assert shown.out == ""


def test_a_terminal_gets_a_bar_above_which_lines_stay(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    run(Progress(file=file))
    text = file.getvalue()
    assert all(f"{line}\n" in text for line in LINES)
    assert "\x1b[" in text
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")  # the cursor is back


def test_a_notebook_gets_tqdms_bar(monkeypatch, capsys):
    pytest.importorskip("tqdm", reason="needs tqdm")
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    run(Progress())
    shown = capsys.readouterr().err
    assert all(f"{line}\n" in shown for line in LINES)
    assert "epoch 2/3" in shown
    assert "1/4" in shown  # resumed behind the first step
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    run(Progress())
    assert capsys.readouterr().err.splitlines() == LINES


def test_a_loss_on_a_device_is_not_waited_for(capsys):
    def read():
        raise AssertionError

    run(Progress("bar"), [Pending(read)])
    run(Progress("lines"), [Pending(read)])


def test_a_style_is_one_of_four():
    with pytest.raises(UnknownNameError, match="one of auto, bar, notebook, lines, found 'tqdm'"):
        Progress("tqdm")
