"""What a person reads of a training."""

import io
import json
import struct
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from foldbatch.engines.pending import Pending
from foldbatch.params.parameters import SparseRows
from foldbatch.train import CSVLog, JSONLinesLog, ParameterStatistics, Progress, TensorBoardLog
from foldbatch.train.parallel import Batch
from foldbatch.train.resuming import Position
from tests.train.callbacks.tiny import EXAMPLES, Fake, through_json, trainer


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


def test_lines_are_json_that_anything_reads(tmp_path):
    path = tmp_path / "log.jsonl"
    fake_run(
        JSONLinesLog(path),
        {"loss": np.float32(0.5), "table": [[1]], "norms": {"w": np.ones(2)}},
        {"loss": np.inf},
    )
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [
        {"epoch": 1, "steps": 0, "loss": 0.5, "table": [[1]], "norms": {"w": [1, 1]}},
        {"epoch": 2, "steps": 0, "loss": None},
    ]


def test_steps_have_lines_of_their_own_and_a_new_training_replaces_the_file(tmp_path):
    path = tmp_path / "log.jsonl"
    for _ in range(2):
        made = trainer(JSONLinesLog(path, every=2))
        made.fit(EXAMPLES, epochs=1)
        made.step(EXAMPLES[:2])  # outside of fit
        made.fit(EXAMPLES, epochs=2)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line.get("step"), line["epoch"], line.get("steps")) for line in lines] == [
        (2, 1, None),
        (None, 1, 3),
        (6, 2, None),
        (None, 2, 7),
    ]
    assert lines[1] == {"steps": 3, **made.history[0]}
    assert lines[0]["loss"] > 0
    assert lines[0]["lr"] == 0.5


def test_lines_after_a_checkpoint_go(tmp_path):
    path = tmp_path / "log.jsonl"
    first = fake_run(JSONLinesLog(path), {"loss": 3})
    state = through_json(first.callback.state())
    first.callback.on_fit_start(first)
    first.run_epoch(loss=2)
    assert len(path.read_text().splitlines()) == 2
    again = JSONLinesLog(path)
    again.load_state(state)
    fake_run(again, {"loss": 1})
    assert [json.loads(line)["loss"] for line in path.read_text().splitlines()] == [3, 1]
    path.write_text("")  # somebody emptied it
    fake_run(again, {"loss": 0})
    assert path.read_text() == '{"epoch":1,"steps":0,"loss":0}\n'


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


event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2", reason="needs tensorboardX")


def events(folder):
    """Return the events of a folder's files, in order: records of length, check, data, check."""
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_ctime_ns):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack_from("<Q", data)
            yield event_pb2.Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]


def scalars(folder):
    return [(e.step, v.tag, v.simple_value) for e in events(folder) for v in e.summary.value]


def run_of_tensorboard(callback, *, steps=0):
    fake = Fake(callback)
    fake.steps = steps
    callback.on_fit_start(fake)
    for loss in (4.0, 2.0):
        fake.steps += 1
        fake.batch = Batch([0, 1], ["a", "b"], loss)
        callback.on_step_end(fake)
    fake.run_epoch(loss=1.5, f1={"good": 0.25}, table=[[1]], note="text")
    callback.on_fit_end(fake)
    callback.on_step_end(fake)  # outside of fit


def test_figures_are_drawn_over_steps(tmp_path):
    run_of_tensorboard(TensorBoardLog(tmp_path, every=2))
    assert scalars(tmp_path) == [
        (2, "step/loss", 1.0),
        (2, "step/lr", pytest.approx(0.1)),
        (2, "epoch", 1.0),
        (2, "loss", 1.5),
        (2, "f1/good", 0.25),
    ]


def test_a_resumed_training_drops_later_events(tmp_path):
    run_of_tensorboard(TensorBoardLog(tmp_path), steps=5)
    starts = [event.step for event in events(tmp_path) if event.HasField("session_log")]
    assert starts[:1] == [6]


def test_norms_are_by_name_and_of_the_mean():
    fake = Fake(ParameterStatistics())

    class Stands:
        params = {"w": np.array([[3e30, 4e30]], "float32"), "table": np.ones((4, 1), "float32")}

    fake.program = Stands
    rows = SparseRows(np.array([1, 3]), np.array([[6.0], [8.0]], "float32"), (4, 1))
    fake.batch = Batch([0, 1], ["a", "b"], 0.0, {"table": rows})
    fake.callback.on_step_end(fake)
    fake.run_epoch()
    assert fake.figures["norms"]["table"] == 2
    np.testing.assert_allclose(fake.figures["norms"]["w"], 5e30)
    assert fake.figures["gradient_norms"] == {"table": 5}
    again = ParameterStatistics()  # resumed between the last batch of an epoch and its end
    again.load_state(through_json(fake.callback.state()))
    fake.callback = again
    fake.run_epoch()
    assert fake.figures["gradient_norms"] == {"table": 5}


pytest.importorskip("matplotlib", reason="needs matplotlib")
