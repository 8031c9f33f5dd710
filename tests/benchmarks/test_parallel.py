"""The benchmark of processes: what one process measures, and the tables."""

from __future__ import annotations

import json
import os

import pytest

from benchmarks import parallel


def test_a_process_measures_steps_and_bytes(capsys, monkeypatch):
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("processes cannot be pinned here")
    pinned = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: pinned.append(cores))
    assert parallel.main(["--worker", "--hidden", "2", "--batch", "2", "--steps", "2"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["sent"] == 0 and answer["dense"] > 0 and answer["rows"] > 0
    assert set(answer["compute"]) == {"1", "2"} and len(pinned[0]) == 1


def test_tables_say_what_two_processes_gain(monkeypatch):
    one = {"step": 4e-3, "share": 3e-3, "busy": 4e-3, "update": 1e-3, "sent": 0, "dense": 1000, "rows": 1000}
    runs = {1: one | {"compute": {"1": 1e-3, "2": 2e-3, "4": 3e-3}}, 2: one | {"step": 2.5e-3, "sent": 1500}}
    monkeypatch.setattr(parallel, "_launched", lambda options, count: runs[count])
    options = parallel._parser().parse_args(["--batch", "4", "--repeats", "1"])
    text = parallel.tables(parallel.measure(options))
    assert "2 processes: 1600 sentences/s" in text and "speed-up 1.60, efficiency 80%" in text
    assert "N=4:" in text and "N=8:" not in text
