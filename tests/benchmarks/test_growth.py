"""The cases of growth at toy size: what is counted is right, and what is timed is there."""

from __future__ import annotations

import json

import numpy as np
import pytest

import foldbatch as fb
from benchmarks import growth
from benchmarks.growth import PHASES, SHAPES, Outcome, Row
from benchmarks.measure import Timing


def _outcome(*seconds: float) -> Outcome:
    rows = tuple(
        Row(64 * 2**i, Timing(s, s, s, 3), dict.fromkeys(PHASES, s / 4), 3 + i, 7, 10**6)
        for i, s in enumerate(seconds)
    )
    return Outcome("star", {"hidden": 2, "repeats": 3, "backend": "numpy"}, rows)


@pytest.mark.parametrize(
    ("case", "levels"),
    [
        # zeros, words, a step a word, the loss
        ("chain", [67, 131]),
        # leaves, and the node with the loss
        ("star", [2, 2]),
        # leaves, 6 or 7 levels, the loss
        ("balanced", [8, 9]),
    ],
)
def test_each_size_has_its_levels_and_times(case, levels):
    outcome = growth.run(case, 128, hidden=2, repeats=2, backend="numpy")
    assert [row.nodes for row in outcome.rows] == [64, 128]
    assert [row.levels for row in outcome.rows] == levels
    for row in outcome.rows:
        assert row.step.median > 0
        assert row.step.runs == 2
        assert row.phases.keys() == set(PHASES)
        assert all(seconds > 0 for seconds in row.phases.values())
        assert row.kernels >= 2 * row.levels - 2
    assert outcome.rows[0].buffer_bytes < outcome.rows[1].buffer_bytes
    assert outcome.exponent is not None
    found = json.loads(json.dumps(growth.as_dict(outcome)))
    assert found["rows"][1]["seconds_a_node"] == outcome.rows[1].step.median / 128


@pytest.mark.parametrize("case", SHAPES)
def test_no_call_is_shared_and_all_parameters_learn(case):
    """Else a large example would be cheaper than it looks."""
    program = fb.compile(SHAPES[case].model(3, 10), "numpy")
    example = [SHAPES[case].example(10)]
    report = program.describe(example)
    assert report.distinct == report.calls
    _, gradients = program.value_and_grad(example)
    dense = {name: g.dense() if isinstance(g, fb.params.SparseRows) else g for name, g in gradients.items()}
    assert all(np.abs(g).max() > 0 for g in dense.values())
    (embedding,) = (g for name, g in dense.items() if name.startswith("embedding"))
    assert (np.abs(embedding).max(axis=1) > 0).all()


def test_the_exponent_is_that_of_the_last_doublings():
    """Time that quadruples grows as the square, whatever came before."""
    assert _outcome(9.0, 1.0, 2.0, 4.0, 8.0).exponent == pytest.approx(1)
    assert _outcome(1.0, 4.0, 16.0).exponent == pytest.approx(2)
    assert _outcome(1.0).exponent is None
