"""The cases of growth at toy size: what is counted is right, and what is timed is there."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from benchmarks.growth import SHAPES


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
