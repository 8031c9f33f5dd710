"""Operations are those of the model's products, counted node by node; the rate is that of products."""

from __future__ import annotations

from benchmarks.floor import Counts, count
from benchmarks.workload import random_trees
from foldbatch.trees import Tree


def test_operations_are_those_of_each_node() -> None:
    """A leaf H x 3H, a node 2H x 5H, every node H x 5 where losses are."""
    batches, hidden = [random_trees(3, seed=1), random_trees(2, seed=2)], 7
    expected = 0
    for batch in batches:
        for tree in batch:
            for node in tree.nodes():
                product = hidden * 3 * hidden if node.is_leaf else 2 * hidden * 5 * hidden
                expected += 2 * product + 2 * hidden * 5
    counts = count(batches)
    assert counts.operations(hidden, training=True, shared=False) == 3 * expected
    roots, nodes = sum(map(len, batches)), sum(tree.size for batch in batches for tree in batch)
    expected -= (nodes - roots) * 2 * hidden * 5
    assert counts.operations(hidden, training=False, shared=False) == expected


def test_words_are_shared_within_a_batch() -> None:
    """Not beyond it."""
    tree = Tree.from_nested((1, (2, "a"), (3, "a")))
    assert count([[tree, tree], [tree]]) == Counts(trees=3, leaves=6, words=2, inner=3)
    alone, shared = (Counts(1, 6, 2, 3).operations(10, training=True, shared=s) for s in (False, True))
    assert alone - shared == 3 * 2 * 4 * 10 * 30
