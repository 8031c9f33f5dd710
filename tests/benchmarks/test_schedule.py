"""What scheduling costs, on batches of a few nodes: figures are there, and drawn where they belong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import schedule
from benchmarks.command import main
from benchmarks.schedule import PARTS
from benchmarks.workload import random_trees


def test_every_part_of_every_batch_is_timed() -> None:
    """And a training step for batches of trees, which is longer than what it contains."""
    trees = random_trees(4)
    rows, chains = schedule.run(trees, 2, 1, 10, "numpy")
    assert [row.name for row in rows] == ["SST, 1 trees", "SST, 4 trees", "star, 10 children"]
    assert [row.nodes for row in rows] == [trees[0].size, sum(tree.size for tree in trees), 10]
    assert [row.nodes for row in chains] == [1, 3, 10]
    for row in (*rows, *chains):
        assert set(PARTS) <= set(row.seconds)
        assert all(seconds > 0 for seconds in row.seconds.values())
    for row in rows[:2]:
        assert row.share is not None
        assert 0 < row.share
    assert [row.share for row in (rows[2], *chains)] == [None] * 4


def test_schedule_prints_a_row_for_each_batch_and_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Batches of a 64th, a 16th, a quarter and all of the trees; a star; chains."""
    monkeypatch.setenv("COLUMNS", "180")
    file = tmp_path / "growth.json"
    small = ["--batch", "8", "--hidden", "3", "--nodes", "20", "--repeats", "1", "--backend", "numpy"]
    assert main(["schedule", *small, "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split("│")[1].strip() for line in lines if "│" in line]
    assert names[:5] == ["SST, 1 trees", "SST, 2 trees", "SST, 8 trees", "star, 20 children", "chain of 1"]
    assert [row["nodes"] for row in json.loads(file.read_text())["chains"]] == [1, 2, 6, 20]
