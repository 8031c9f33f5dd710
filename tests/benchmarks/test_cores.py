"""The model of many cores: parts are those that the engine makes, and more of them take no longer."""

from __future__ import annotations

import time

from benchmarks import cores
from benchmarks.workload import random_trees


def test_a_model_has_a_row_for_each_number_of_cores() -> None:
    rows = cores.predicted(random_trees(40, words=30), 8, 1, "numpy", time.process_time)
    assert [row[0] for row in rows] == list(cores.CORES)
    parts = [row[1] for row in rows]
    assert parts == sorted(parts) and parts[0] == 1
    assert all(known > 0 and new > 0 for _, _, known, new in rows)
