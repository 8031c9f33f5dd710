"""The case ``models`` at toy size: every model at every size of batch, and what the columns mean."""

from __future__ import annotations

import json

from benchmarks import zoo
from benchmarks.workload import random_trees
from benchmarks.zoo import INFER, PLAN, TRAIN
from benchmarks.zoo_models import MODELS


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


def test_a_first_tracing_finds_no_trace():
    """Traces are kept by identity, so it is given equal trees."""
    trees, seen = random_trees(3), []

    class Recorder:
        prepare = staticmethod(seen.extend)

    assert zoo._trace_seconds(Recorder(), [trees[:2], trees[2:]]) > 0
    assert seen == trees
    assert not any(copy is tree for copy, tree in zip(seen, trees, strict=True))
