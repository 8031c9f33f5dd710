"""Structures make the calls they are said to make, and policies differ on them as published."""

from __future__ import annotations

import pytest

from benchmarks.structures import (
    OUTPUTS,
    ROOT,
    TAGGER,
    TREE_OVER_TAGGER,
    count,
    random_lattices,
    structures,
)
from benchmarks.workload import random_trees


@pytest.fixture(scope="module")
def counts():
    trees = random_trees(24, seed=0)
    batches = structures(trees, random_lattices(trees))
    return trees, {name: count(batch) for name, batch in batches.items()}


def test_counts_follow_from_heights_and_lengths(counts) -> None:
    """A tree of height h: words, leaves, h levels, outputs. A sentence of n: words, two chains, two layers."""
    trees, found = counts
    height, length = max(tree.height for tree in trees), max(len(tree.words()) for tree in trees)
    assert found[ROOT].groups == dict.fromkeys(found[ROOT].groups, 2 + height)
    assert found[OUTPUTS].groups == {
        "auto": 3 + height,
        "by_component": 3 + height,
        "by_agenda": 3 + 2 * height,
        "by_depth": 3 + 2 * height,
    }
    assert found[TAGGER].bound == found[TAGGER].groups["by_component"] == 2 * length + 3
    assert found[TREE_OVER_TAGGER].groups["by_component"] == 3 + 2 * length + height
