"""The command counts what policies do and times what scheduling takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from foldbatch.bench.__main__ import main


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


def test_schedule_prints_a_row_for_each_batch_and_draws_the_chains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Batches of a 64th, a 16th, a quarter and all of the trees; a star; chains."""
    monkeypatch.setenv("COLUMNS", "180")
    drawing = tmp_path / "growth.svg"
    small = ["--batch", "8", "--hidden", "3", "--nodes", "20", "--repeats", "1", "--backend", "numpy"]
    assert main(["schedule", *small, "--plot", str(drawing)]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split("│")[1].strip() for line in lines if "│" in line]
    assert names[:5] == ["SST, 1 trees", "SST, 2 trees", "SST, 8 trees", "star, 20 children", "chain of 1"]
    assert drawing.read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["schedule", "--nodes", "x"], "argument --nodes: expected 1 or more, found x"),
        (["policies", "--batch", "-3"], "argument --batch: expected 1 or more, found -3"),
        (["schedule", "--plot", "/no/such/folder/x.svg"], "expected a file in a folder that exists"),
        (["--json", "/no/such/folder/x.json"], "expected a file in a folder that exists"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(arguments, message, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err
