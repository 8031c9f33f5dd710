"""The model of Fold's benchmark, and its trees."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from benchmarks.fold_model import fold_model


def test_a_node_computes_what_the_paper_s_does():
    """Written out in NumPy, for one node."""
    program = fb.compile(fold_model(3, 2), "numpy")
    rng = np.random.default_rng(0)
    for name, array in program.params.items():
        program.params[name] = rng.normal(size=array.shape)
    p = program.params
    left, right = p["leaf.weight"]
    hidden = np.maximum(np.concatenate([left, right]) @ p["hidden.weight"] + p["hidden.bias"], 0)
    g = hidden @ p["gates.weight"] + p["gates.bias"]
    f_left, f_right, i = np.split(1 / (1 + np.exp(-g[:9])), 3)
    expected = f_left * left + f_right * right + i * np.tanh(g[9:])
    (found,) = program.run([fb.trees.Tree([2, 2, -1], [0, 1, None])])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    loss, _ = program.value_and_grad([fb.trees.Tree([2, 2, -1], [0, 1, None])])
    assert loss == pytest.approx(0.5 * (expected**2).sum(), rel=1e-5)
