"""Fold's Table 1 at toy size: every column, and none of it taken on trust."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import fold_paper
from benchmarks.fold_paper import (
    BY_LEVEL,
    BY_NODE,
    DIFFERENT,
    IDENTICAL,
    INFER,
    PLAN,
    SIDES,
    TASKS,
    TRAIN,
    Outcome,
    Row,
)
from benchmarks.fold_paper_tables import as_dict, tables
from benchmarks.manual import Manual
from benchmarks.measure import Timing
from foldbatch.errors import FoldbatchError


def _row(batch: int, train: dict[str, float]) -> Row:
    seconds = {f"{task} {side}": train[side] for task in TASKS for side in SIDES} | {PLAN: 0.01}
    timings = {name: Timing(value, value, value, 3) for name, value in seconds.items()}
    return Row(batch, (3, 4), timings, 0.5, "BLAS")


def _outcome() -> Outcome:
    rows = (
        _row(1, {BY_NODE: 4.0, BY_LEVEL: 1.0, IDENTICAL: 1.0, DIFFERENT: 2.0}),
        _row(64, {BY_NODE: 64.0, BY_LEVEL: 16.0, IDENTICAL: 24.0, DIFFERENT: 32.0}),
    )
    options = {"leaves": 4, "size": 2, "backend": "numpy", "cores": 2}
    return Outcome(options, rows, {1024: "too many"})


def test_every_side_of_every_batch_is_timed():
    outcome = fold_paper.run(6, 4, (3, 1), repeats=2, seconds=0.0, backend="numpy")
    assert [row.batch for row in outcome.rows] == [1, 3]
    for row in outcome.rows:
        assert row.seconds.keys() == {f"{task} {side}" for task in TASKS for side in SIDES} | {PLAN}
        assert all(timing.median > 0 and timing.runs == 2 for timing in row.seconds.values())
        assert row.trace > 0
        assert all(3 <= levels <= 5 for levels in row.levels)
    assert outcome.options["backend"] == "numpy"
    assert json.loads(json.dumps(as_dict(outcome)))["rows"][1]["batch"] == 3
    assert [table.row_count for table in tables(outcome)] == [2, 2, 2, 2]


def test_cost_is_to_the_program_by_hand_and_speedup_over_batch_one():
    """Each tree's time counts: 32 s for 64 trees are half a second."""
    outcome = _outcome()
    first, last = outcome.rows
    assert last.each(TRAIN, DIFFERENT) == 0.5
    assert (last.cost(TRAIN, IDENTICAL), last.cost(INFER, DIFFERENT)) == (1.5, 2.0)
    assert last.cost(TRAIN, DIFFERENT, BY_NODE) == 0.5
    assert outcome.speedup(last, TRAIN, DIFFERENT) == 4.0
    assert outcome.speedup(last, TRAIN, BY_NODE) == 8.0
    assert Outcome(outcome.options, (last,), {}).speedup(last, TRAIN, DIFFERENT) is None
    assert outcome.speedup(first, INFER, DIFFERENT) == 1.0


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_program_by_hand_that_computes_something_else_is_refused(monkeypatch, what):
    right = Manual.value_and_grad

    def wrong(self, words, **options):
        loss, gradients = right(self, words, **options)
        if what == "loss":
            return 1.01 * loss, gradients
        return loss, gradients | {"gates.bias": np.asarray(gradients["gates.bias"])[::-1]}

    monkeypatch.setattr(Manual, "value_and_grad", wrong)
    with pytest.raises(FoldbatchError, match=f"by hand: expected a {what}"):
        fold_paper.run(6, 4, (2,), repeats=2, seconds=0.0, backend="numpy")
