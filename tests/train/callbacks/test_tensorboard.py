"""TensorBoardLog: the events that TensorBoard reads. No engine runs."""

from __future__ import annotations

import struct

import pytest

from foldbatch.errors import TrainingError
from foldbatch.train import TensorBoardLog
from foldbatch.train.shares import Batch
from tests.train.callbacks.tiny import Fake

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


def run(callback, *, steps=0):
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
    run(TensorBoardLog(tmp_path, every=2))
    assert scalars(tmp_path) == [
        (2, "step/loss", 1.0),
        (2, "step/lr", pytest.approx(0.1)),
        (2, "epoch", 1.0),
        (2, "loss", 1.5),
        (2, "f1/good", 0.25),
    ]


def test_a_resumed_training_drops_later_events(tmp_path):
    run(TensorBoardLog(tmp_path), steps=5)
    starts = [event.step for event in events(tmp_path) if event.HasField("session_log")]
    assert starts[:1] == [6]


def test_settings_are_checked(tmp_path):
    with pytest.raises(TrainingError, match="TensorBoardLog every: expected 1 step or more"):
        TensorBoardLog(tmp_path, every=0)
