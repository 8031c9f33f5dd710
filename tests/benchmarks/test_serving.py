"""The load on a server: what is counted, and one short run."""

from __future__ import annotations

import pytest

from benchmarks.serving import Load, main

NEEDS = "needs what serves: pip install 'foldbatch[serve]'"


def test_a_load_says_how_fast_and_how_evenly_answers_came():
    text = str(Load(2, 2.0, [1.0] * 50 + [4.0] * 50, 3, 0.025))
    assert "50 answers a second" in text and "p50 2.50 ms, p99 4.00 ms (1.6 times), 0.25 ms of CPU" in text
    assert text.endswith("each, 3 errors")


def test_a_short_run(capsys, tmp_path):
    pytest.importorskip("foldbatch.serve.running", reason=NEEDS)
    (tmp_path / "train.txt").write_text("(3 (2 a) (4 gem))\n(1 (2 a) (0 (0 bad) (2 film)))\n")
    brief = ["--seconds", "0.2", "--rounds", "1", "--connections", "3", "--hidden", "2"]
    assert main([*brief, "--data", str(tmp_path), "--backend", "numpy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4].startswith("3 connections") and " 0 errors" in lines[-4]
    assert "times the answers of one at a time" in lines[-2] and "MB at the end" in lines[-1]
