"""The case ``policies`` counts what policies do, on models by hand and compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.command import main


def test_policies_prints_a_row_for_each_model_by_hand_and_compiled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On random trees where there is no treebank, or on the one that is named."""
    assert main(["policies", "--batch", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("traces │" in line for line in lines) == sum("blocks │" in line for line in lines) == 7
    (header,) = (line for line in lines if "model" in line and "bound" in line)
    assert header.index("depth") < header.index("agenda") < header.index("component")


def test_policies_reads_the_treebank_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One tree of height 1: two words and a node are three groups."""
    (tmp_path / "train.txt").write_text("(3 (2 good) (2 film))\n", encoding="utf-8")
    assert main(["policies", "--data", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert f"1 trees of {tmp_path}" in out.replace("\n", "")
    (row,) = (line for line in out.splitlines() if "root only" in line)
    assert [cell.strip() for cell in row.split("│")][3:8] == ["5", "3", "3", "3", "3"]


def test_a_tree_that_is_not_binary_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As every mistake of a user's."""
    (tmp_path / "train.txt").write_text("(3 (2 a) (2 good) (2 film))\n", encoding="utf-8")
    assert main(["policies", "--data", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error == "error: sentence: expected a binary tree, found a node with 3 children\n"
