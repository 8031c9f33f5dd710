"""The level order of random binary trees."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.flat import level_order
from tests.benchmarks.flat_trees import random_trees


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 12), min_size=1, max_size=5))
def test_the_children_of_each_level_are_the_rows_of_the_level_below_in_order(seed, sizes):
    trees = random_trees(seed, sizes)
    order = level_order(trees)
    keys = [f"{t}.{k}" for t, tree in enumerate(trees) for k in range(len(tree.parents))]
    parent = {
        f"{t}.{k}": f"{t}.{p}" for t, tree in enumerate(trees) for k, p in enumerate(tree.parents) if p >= 0
    }
    depth = {}
    for key in reversed(keys):
        depth[key] = depth[parent[key]] + 1 if key in parent else 0
    rows = sorted(keys, key=lambda key: -depth[key])
    leaf = {f"{t}.{k}": w >= 0 for t, tree in enumerate(trees) for k, w in enumerate(tree.words)}
    labels = {f"{t}.{k}": label for t, tree in enumerate(trees) for k, label in enumerate(tree.labels)}
    assert [labels[row] for row in rows] == order.labels.tolist()
    assert order.inner_rows.tolist() == [k for k, row in enumerate(rows) if not leaf[row]]
    assert order.leaf_rows.tolist() == [k for k, row in enumerate(rows) if leaf[row]]
    start = 0
    for size, leaves in zip(order.sizes, order.leaves, strict=True):
        level = rows[start : start + size]
        assert len({depth[row] for row in level}) == 1
        assert sum(leaf[row] for row in level) == leaves
        below = rows[start - sum(2 for row in level if not leaf[row]) : start]
        inner = [row for row in level if not leaf[row]]
        assert [parent[row] for row in below] == [row for row in inner for _ in range(2)]
        grouped = inner + [row for row in level if leaf[row]]
        assert [grouped[source] for source in order.sources[start : start + size]] == level
        start += size
    words = {f"{t}.{k}": word for t, tree in enumerate(trees) for k, word in enumerate(tree.words)}
    assert order.words[order.word_of_leaf].tolist() == [words[row] for row in rows if leaf[row]]
    assert (np.diff(order.words) > 0).all()
