"""Callbacks: a subclass says what it does; the rest does nothing."""

from __future__ import annotations

from typing import Any

import pytest

import foldbatch as fb
from foldbatch.train import (
    Accuracy,
    AverageWeights,
    Callback,
    Checkpoints,
    ClipGradients,
    Confusion,
    CSVLog,
    EarlyStopping,
    JSONLinesLog,
    LambdaCallback,
    NaNGuard,
    ParameterStatistics,
    ReduceOnPlateau,
    Schedule,
    TimeLimit,
)
from tests.train.callbacks.tiny import DEV, EXAMPLES, assert_same, trainer, without_seconds


def test_a_callback_does_nothing_by_default():
    callback, trainer = Callback(), object()
    moments: list[Any] = [getattr(callback, name) for name in dir(callback) if name.startswith("on_")]
    assert len(moments) == 8
    assert all(moment(trainer) is None for moment in moments)
    assert callback.state() == {}


def all_callbacks(folder, killed_at=None):
    def kill(trainer):
        if trainer.steps == killed_at:
            raise SystemError

    return [
        NaNGuard(),
        ClipGradients(1.0),
        Schedule(fb.train.schedules.one_cycle(20)),
        AverageWeights(0.9, dev=DEV),
        ReduceOnPlateau("dev_loss", "min", patience=1),
        EarlyStopping("dev_averaged_loss", "min", restore=True),
        TimeLimit(1000),
        ParameterStatistics(),
        CSVLog(folder / "log.csv"),
        JSONLinesLog(folder / "log.jsonl", every=2),
        Checkpoints(folder, every=2, best="dev_averaged_accuracy"),
        LambdaCallback(on_step_start=kill),
    ]


def test_all_callbacks_together_resume_to_the_bit(tmp_path):
    def run(name, killed_at=None, *, resume=False):
        made = trainer(
            *all_callbacks(tmp_path / name, killed_at), metrics=[Accuracy("out"), Confusion("out")]
        )
        made.fit(EXAMPLES, DEV, epochs=4, resume=resume)
        return made

    whole = run("whole")
    for killed_at in (2, 3, 7, 9):  # within an epoch, between two, behind a checkpoint
        with pytest.raises(SystemError):
            run(str(killed_at), killed_at)
        assert_same(whole, run(str(killed_at), resume=True))
        for ending in ("csv", "jsonl"):
            logs = [(tmp_path / name / f"log.{ending}").read_text() for name in ("whole", str(killed_at))]
            assert without_seconds(logs[0]) == without_seconds(logs[1])
