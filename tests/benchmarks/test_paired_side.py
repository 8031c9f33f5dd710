"""Each side of a paired run has its models, and a rate is examples by time."""

from __future__ import annotations

import io
import json

import pytest

import foldbatch as fb
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


def test_a_rate_counts_all_examples():
    seen: list[int] = []
    rate = paired_side._rate(lambda batch: seen.append(len(batch)), [[1, 2], [3]], 0.0005)
    assert rate > 0
    assert seen[:4] == [2, 1, 2, 1]


def test_new_trees_are_copies():
    seen = []
    tree = fb.trees.parse_brackets("(3 (4 good) (2 movie))")
    paired_side._rate(lambda batch: seen.extend(batch), [[tree]], 0, new=True)
    assert seen[0] is tree
    assert seen[1] == tree
    assert seen[1] is not tree
