"""Memory is that of a process that trains, and grows as it does."""

from __future__ import annotations

import sys

from benchmarks.memory import peaks
from benchmarks.task import Task
from benchmarks.variants import OURS
from tests.benchmarks.flat_trees import random_parameters, random_trees


def test_peaks_grow_and_who_is_absent_is_named(tmp_path) -> None:
    """A pool that is taken ahead is not measured."""
    Task(8, random_parameters(1, 8, 9, "float32"), [random_trees(0, [9] * 8)]).save(tmp_path / "task.npz")
    pythons = {OURS: sys.executable, "dynet": "python", "torch": "/no/such/python"}
    found, absent = peaks(tmp_path / "task.npz", [0], pythons)
    assert list(found) == ["foldbatch"]
    peak = found["foldbatch"]
    assert 10_000_000 < peak.imported <= peak.ready <= peak.trained
    assert "ahead" in absent["dynet"]
    assert "/no/such/python" in absent["torch"]
