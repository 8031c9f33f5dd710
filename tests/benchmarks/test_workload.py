"""The benchmark's model is the one it says, and its random trees look like sentences."""

import numpy as np

import foldbatch as fb
from benchmarks.workload import random_trees, tree_lstm


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_loss_equals_a_recursion_in_float64() -> None:
    """Leaf gates i, o, u; node gates i, f_l, f_r, o, u; a cross-entropy at every node."""
    trees = random_trees(5, seed=3, words=20)
    vocabulary = fb.trees.Vocabulary.count(word for tree in trees for word in tree.words())
    program = fb.compile(tree_lstm(6, vocabulary))
    w = {name: np.array(value, np.float64) for name, value in program.params.items()}
    total = 0.0

    def state(node: fb.trees.TreeNode) -> tuple[np.ndarray, np.ndarray]:
        nonlocal total
        if node.is_leaf:
            i, o, u = np.split(
                w["embedding.weight"][vocabulary[node.token]] @ w["leaf.weight"] + w["leaf.bias"], 3
            )
            c = _sigmoid(i) * np.tanh(u)
        else:
            (hl, cl), (hr, cr) = (state(child) for child in node.children)
            gates = np.concatenate([hl, hr]) @ w["node.weight"] + w["node.bias"]
            i, fl, fr, o, u = np.split(gates, 5)
            c = _sigmoid(i) * np.tanh(u) + _sigmoid(fl) * cl + _sigmoid(fr) * cr
        h = _sigmoid(o) * np.tanh(c)
        logits = h @ w["out.weight"] + w["out.bias"]
        total += np.log(np.exp(logits).sum()) - logits[node.label]
        return h, c

    for tree in trees:
        state(tree.root)
    assert np.isclose(program.value_and_grad(trees)[0], total, rtol=1e-5)


def test_random_trees_repeat_by_seed_and_are_of_a_sentence_s_size() -> None:
    """About 19 words in the mean, as in SST; binary; labels 0 to 4."""
    trees = random_trees(200, seed=1)
    assert trees == random_trees(200, seed=1) != random_trees(200, seed=2)
    leaves = np.array([len(list(tree.words())) for tree in trees])
    assert 16 < leaves.mean() < 22
    assert all(len(node) in (0, 2) for tree in trees[:20] for node in tree.nodes())
    assert {node.label for tree in trees for node in tree.nodes()} == set(range(5))
