"""Each side of a paired run has its models, and a rate is examples by time."""

from __future__ import annotations

import io
import json

import pytest

from benchmarks import paired_side

TREES = "(3 (4 good) (2 movie))\n(1 (2 (3 not) (1 a)) (4 good))\n"


@pytest.mark.parametrize("case", ["sst", "child-sum"])
def test_a_side_answers_each_task(case, tmp_path, monkeypatch, capsys):
    file = tmp_path / "train.txt"
    file.write_text(TREES)
    monkeypatch.setattr(
        "sys.stdin", io.StringIO("train 2 0\ngradients 1 0.001\ninfer 2 0.001\ninfer-new 2 0\n")
    )
    monkeypatch.setattr(
        paired_side, "_rate", lambda task, batches, seconds, new: [task(b) for b in batches] and 7.0
    )
    paired_side.main(case, "4", "numpy", str(file))
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [7.0] * 4
