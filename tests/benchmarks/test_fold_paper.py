"""Fold's Table 1 at toy size: every column, and none of it taken on trust."""

import json

import numpy as np
import pytest

from benchmarks import fold_paper
from benchmarks.fold_paper import PLAN, SIDES, TASKS
from benchmarks.fold_paper_tables import as_dict, tables
from benchmarks.manual import Manual
from foldbatch.errors import FoldbatchError


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
