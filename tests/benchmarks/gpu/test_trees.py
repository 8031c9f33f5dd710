"""Drawn trees have the treebank's statistics."""

from __future__ import annotations

import numpy as np

from benchmarks.gpu.trees import sst_like_trees
from benchmarks.workload import load_trees


def statistics(trees):
    heights = np.array([tree.height for tree in trees])
    batches = [trees[k : k + 256] for k in range(0, len(trees) - 255, 256)]
    return {
        "nodes": np.mean([tree.size for tree in trees]),
        "height": heights.mean(),
        "high": np.percentile(heights, 99),
        "levels": np.mean([max(tree.height for tree in batch) for batch in batches]),
        "words": np.mean([len({word for tree in batch for word in tree.words()}) for batch in batches]),
    }


def test_size_height_and_words_are_like_the_treebank_s(sst_dir):
    ours, theirs = statistics(sst_like_trees(2048, seed=1)), statistics(load_trees(sst_dir, 2048))
    for name, value in theirs.items():
        assert abs(ours[name] - value) < 0.12 * value, name


def test_trees_are_binary_and_labelled():
    for tree in sst_like_trees(5, seed=2):
        assert {len(node) for node in tree.nodes()} <= {0, 2}
        assert all(
            node.label in range(5) and (node.token is not None) == node.is_leaf for node in tree.nodes()
        )
