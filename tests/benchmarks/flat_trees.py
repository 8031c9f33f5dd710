"""Random binary trees, and the benchmark's model as plain recursion in NumPy: the peers' oracle."""

import numpy as np

from benchmarks.flat import FlatTree
from benchmarks.peers import parameter_shapes


def random_tree(rng: np.random.Generator, leaves: int, words: int = 9) -> FlatTree:
    """Return a tree made by joining neighbours at random, in post-order."""
    forest = [[(-1, int(rng.integers(words)))] for _ in range(leaves)]  # per tree (parent, word)
    while len(forest) > 1:
        at = int(rng.integers(len(forest) - 1))
        left, right = forest[at : at + 2]
        node = len(left) + len(right)
        moved = [(p if p < 0 else p + len(left), w) for p, w in right]
        joined = [(node if p < 0 else p, w) for p, w in (*left, *moved)]
        forest[at : at + 2] = [[*joined, (-1, -1)]]
    parents, ids = zip(*forest[0], strict=True)
    labels = rng.integers(0, 5, len(parents))
    return FlatTree(np.array(parents, np.int32), labels, np.array(ids))


def random_trees(seed: int, sizes: list[int]) -> list[FlatTree]:
    rng = np.random.default_rng(seed)
    return [random_tree(rng, leaves) for leaves in sizes]


def random_parameters(seed: int, hidden: int, vocabulary_size: int, dtype: str = "float64"):
    rng = np.random.default_rng(seed)
    shapes = parameter_shapes(hidden, vocabulary_size)
    return {name: rng.normal(0, 0.5, shape).astype(dtype) for name, shape in shapes.items()}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def node_states(tree: FlatTree, parameters, hidden: int):
    """Return h and c of every node, in order, from the model's equations alone."""
    states = []
    for node, word in enumerate(tree.words):
        if word >= 0:
            gates = parameters["embedding"][word] @ parameters["leaf_weight"] + parameters["leaf_bias"]
            i, o, u = gates.reshape(3, hidden)
            c = sigmoid(i) * np.tanh(u)
        else:
            (h_l, c_l), (h_r, c_r) = (states[k] for k in np.flatnonzero(tree.parents == node))
            gates = np.concatenate([h_l, h_r]) @ parameters["node_weight"] + parameters["node_bias"]
            i, f_l, f_r, o, u = gates.reshape(5, hidden)
            c = sigmoid(i) * np.tanh(u) + sigmoid(f_l) * c_l + sigmoid(f_r) * c_r
        states.append((sigmoid(o) * np.tanh(c), c))
    return states


def node_logits(tree: FlatTree, parameters, hidden: int):
    h = np.stack([h for h, _ in node_states(tree, parameters, hidden)])
    return h @ parameters["out_weight"] + parameters["out_bias"]


def batch_loss(trees, parameters, hidden: int) -> float:
    total = 0.0
    for tree in trees:
        logits = node_logits(tree, parameters, hidden)
        total += float((np.log(np.exp(logits).sum(1)) - logits[np.arange(len(logits)), tree.labels]).sum())
    return total / len(trees)
