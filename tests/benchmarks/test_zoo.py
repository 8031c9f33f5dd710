"""The case ``models`` at toy size: every model at every size of batch, and what the columns mean."""

from __future__ import annotations

import json

import pytest

from benchmarks import zoo
from benchmarks.measure import Timing
from benchmarks.workload import random_trees
from benchmarks.zoo import INFER, PLAN, TRAIN, Outcome, Row
from benchmarks.zoo_models import MODELS


def _row(model: str, batch: int, train: float) -> Row:
    seconds = {TRAIN: train, INFER: train / 2, PLAN: 0.01}
    timings = {task: Timing(value, value, value, 3) for task, value in seconds.items()}
    return Row(model, 8, batch, timings, 0.002, 1000, 900, 12, 11, 25, 7)


OUTCOME = Outcome(
    {"hidden": 8, "repeats": 3, "backend": "numpy", "sentences": 64},
    (_row("a", 1, 0.1), _row("a", 64, 1.6), _row("b", 64, 1.0)),
)


def test_every_model_is_measured_at_every_size():
    outcome = zoo.run(random_trees(16), hidden=4, batches=(8, 1), repeats=1, backend="numpy")
    assert [(row.model, row.batch) for row in outcome.rows] == [(name, b) for name in MODELS for b in (1, 8)]
    for row in outcome.rows:
        assert row.seconds.keys() == {TRAIN, INFER, PLAN}
        assert all(timing.median > 0 for timing in row.seconds.values())
        assert row.trace > 0
        assert row.calls >= row.distinct >= row.groups >= row.bound > 0
        assert row.kernels > row.groups
        assert row.size == (MODELS[row.model].size or 4)
    found = json.loads(json.dumps(zoo.as_dict(outcome)))
    assert len(found["rows"]) == 2 * len(MODELS)
    assert found["options"]["sentences"] == 16
    assert [table.row_count for table in zoo.tables(outcome)] == [2 * len(MODELS)] * 2


def test_gain_is_over_one_sentence_at_a_time():
    """64 sentences in 1.6 s are 40 a second, one in 0.1 s is 10."""
    first, last, other = OUTCOME.rows
    assert (first.rate(TRAIN), last.rate(TRAIN), last.rate(INFER)) == pytest.approx((10, 40, 80))
    assert OUTCOME.speedup(last, TRAIN) == pytest.approx(4)
    assert OUTCOME.speedup(other, TRAIN) is None
    assert other.planning == 0.01


def test_a_first_tracing_finds_no_trace():
    """Traces are kept by identity, so it is given equal trees."""
    trees, seen = random_trees(3), []

    class Recorder:
        prepare = staticmethod(seen.extend)

    assert zoo._trace_seconds(Recorder(), [trees[:2], trees[2:]]) > 0
    assert seen == trees
    assert not any(copy is tree for copy, tree in zip(seen, trees, strict=True))
