"""The load on a server: what is counted, and one short run."""

import pytest

from benchmarks.serving import main

NEEDS = "needs what serves: pip install -e '.[serve]'"


def test_a_short_run(capsys, tmp_path):
    pytest.importorskip("foldbatch.serve.running", reason=NEEDS)
    (tmp_path / "train.txt").write_text("(3 (2 a) (4 gem))\n(1 (2 a) (0 (0 bad) (2 film)))\n")
    brief = ["--seconds", "0.2", "--rounds", "1", "--connections", "3", "--hidden", "2"]
    assert main([*brief, "--data", str(tmp_path), "--backend", "numpy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4].startswith("3 connections") and " 0 errors" in lines[-4]
    assert "times the answers of one at a time" in lines[-2] and "MB at the end" in lines[-1]
