"""Two checkouts take turns; what is printed is what they answered."""

from __future__ import annotations

import sys

import pytest

from benchmarks.paired import TASKS, compare, main

ANSWERS = """
import sys
for line in sys.stdin:
    print({answer}, flush=True)
"""


def side(tmp_path, answer: str) -> list[str]:
    return [str(tmp_path), sys.executable, "-c", ANSWERS.format(answer=answer)]


def test_ratios_are_of_pairs(tmp_path):
    figures = compare([side(tmp_path, "2.0"), side(tmp_path, "line.split()[1]")], [4, 8], 3, 0.1)
    assert figures == {(task, size): (2.0, size, size / 2) for task in TASKS for size in (4, 8)}


def test_a_side_that_ends_is_named(tmp_path):
    with pytest.raises(SystemExit, match="expected an answer to 'train 1 0.1', found none"):
        compare([side(tmp_path, "1/0"), side(tmp_path, "1")], [1], 1, 0.1)


def test_a_folder_without_trees_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path), str(tmp_path), "--data", str(tmp_path)])
    assert "--data: expected a folder with train.txt" in capsys.readouterr().err
