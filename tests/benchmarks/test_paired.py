"""Two checkouts take turns; what is printed is what they answered."""

from __future__ import annotations

import sys

from benchmarks.paired import TASKS, compare

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
