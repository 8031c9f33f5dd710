"""The model of Fold's benchmark, and its trees."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import foldbatch as fb
from benchmarks.fold_model import fold_model, random_tree


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


def test_spans_are_split_uniformly():
    """Of a tree of four leaves, the left child has one, two or three."""
    rng = np.random.default_rng(0)
    trees = [random_tree(rng, 4) for _ in range(900)]
    assert {tree.size for tree in trees} == {7}
    assert all({len(node) for node in tree.nodes()} == {0, 2} for tree in trees)
    counts = Counter((_size(tree[0]) + 1) // 2 for tree in trees)
    assert set(counts) == {1, 2, 3}
    assert all(240 < count < 360 for count in counts.values())


def _size(node) -> int:
    return 1 + sum(_size(child) for child in node)
