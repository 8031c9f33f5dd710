"""What scheduling costs, on batches of a few nodes: figures are there, and drawn where they belong."""

from __future__ import annotations

import re

import numpy as np
import pytest

from foldbatch.bench import schedule
from foldbatch.bench.schedule import MERGE, PARTS, PLAN, PLANNED, STEP, TABLES, TRACE, Row
from foldbatch.bench.workload import random_trees
from foldbatch.errors import FoldbatchError
from foldbatch.program import compile


def _row(nodes: int, seconds: float, **further: float) -> Row:
    return Row(f"chain of {nodes}", nodes, 2 * nodes, dict.fromkeys(PARTS, seconds) | further)


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


def test_a_chain_is_a_call_for_each_word_and_each_state() -> None:
    """The star sums up its children in one call."""
    row = schedule.measure("chain", compile(schedule.chain(), "numpy"), [[1, 2, 3], [4]], 4, 1)
    assert row.calls == 2 * 4 + 2
    assert schedule.measure("star", compile(schedule.star(), "numpy"), [[1, 2, 3]], 3, 1).calls == 4


def test_scheduling_is_what_follows_the_trace() -> None:
    """The share of a step is that of the whole, timed apart: known traces are looked up, nothing is cached."""
    seconds = {TRACE: 64.0, MERGE: 1.0, PLAN: 2.0, TABLES: 4.0, PLANNED: 15.0, STEP: 30.0}
    row = Row("x", 1, 1, seconds)
    assert row.scheduling == 7
    assert row.share == 0.5


def test_the_table_is_in_milliseconds_and_rates_in_microseconds() -> None:
    found = schedule.table([_row(10, 0.001, **{PLANNED: 0.004, STEP: 0.016})], [_row(100, 0.002)])
    assert found.row_count == 2
    cells = [list(column.cells) for column in found.columns]
    assert [c[0] for c in cells] == ["chain of 10", "10", "20", *["1.000"] * 4, "50.00", "300.00", "25.0%"]
    assert [c[1] for c in cells[3:]] == [*["2.000"] * 4, "10.00", "60.00", ""]


def _points(text: str) -> list[np.ndarray]:
    found = re.findall(r'<polyline points="([^"]*)"', text)
    return [np.array([[float(x) for x in p.split(",")] for p in line.split()]) for line in found]


def test_linear_growth_is_drawn_parallel_to_the_dashed_line() -> None:
    """And all of it inside the frame."""
    text = schedule.plot([_row(n, n * 1e-6) for n in (10, 100, 1000)])
    dashed, *parts = _points(text)[-1 - len(PARTS) :]
    slope = np.diff(dashed, axis=0)[0]
    for points in parts:
        np.testing.assert_allclose(np.diff(points, axis=0), [slope / 2] * 2, atol=0.2)
        assert (np.diff(points[:, 0]) > 0).all()
    width, height = map(float, re.findall(r'viewBox="0 0 (\d+) (\d+)"', text)[0])
    everything = np.concatenate(_points(text))
    assert (everything >= 0).all()
    assert (everything <= [width, height]).all()


def test_a_single_chain_can_be_drawn() -> None:
    """One point is a decade of its own."""
    assert "<circle" in schedule.plot([_row(1, 1e-3)])


def test_there_must_be_trees() -> None:
    with pytest.raises(FoldbatchError, match="bench schedule: expected one tree or more, found none"):
        schedule.run([], 2, 1, 10)
