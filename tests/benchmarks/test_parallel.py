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
