"""Logs: a line an epoch; a resumed training writes the file of the unbroken one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from foldbatch.errors import TrainingError
from foldbatch.train import CSVLog, JSONLinesLog
from tests.train.callbacks.tiny import DEV, EXAMPLES, Fake, run_in_two, through_json, trainer, without_seconds


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


@pytest.mark.parametrize("cut", [1, 3])
def test_a_resumed_training_cuts_off_what_came_after_its_checkpoint(tmp_path, cut):
    paths = iter([tmp_path / "whole", tmp_path / "other", tmp_path / "other"])

    def make():
        path = next(paths)
        return trainer(CSVLog(f"{path}.csv"), JSONLinesLog(f"{path}.jsonl", every=2))

    run_in_two(make, cut=cut, epochs=4)
    for ending in ("csv", "jsonl"):
        whole, other = (
            without_seconds((tmp_path / f"{name}.{ending}").read_text()) for name in ("whole", "other")
        )
        assert other == whole
        assert len(whole) > 4


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


def test_the_dev_set_is_in_both(tmp_path):
    trainer(CSVLog(tmp_path / "log.csv")).fit(EXAMPLES, DEV, epochs=1)
    assert (tmp_path / "log.csv").read_text().startswith("epoch,loss,seconds,dev_loss\n1,")


def test_settings_are_checked():
    with pytest.raises(TrainingError, match="JSONLinesLog every: expected 1 step or more"):
        JSONLinesLog("log", every=0)
