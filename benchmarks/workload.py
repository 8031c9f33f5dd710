"""What the benchmark runs: the SST Tree-LSTM and the trees it runs on.

The model is the binary Tree-LSTM with one bias per kind of node: embedding of the model's own
width; a leaf has gates i, o, u from W x + b; a node gates i, f_l, f_r, o, u from [h_l; h_r] U + b;
a linear softmax classifier and a cross-entropy stand at every node, summed over the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import foldbatch as fb
from benchmarks.inside import Node
from foldbatch import (
    AllOf,
    Block,
    Embedding,
    ForwardDeclaration,
    Function,
    GetItem,
    InputTransform,
    Linear,
    Loss,
    OneOf,
    Record,
    Scalar,
    ops,
)
from foldbatch.trees import Tree, Vocabulary, read_sst

CLASSES = 5
State = tuple[Node, Node]


def tree_lstm(hidden: int, vocabulary: Vocabulary, dtype: str = "float32") -> Block:
    """Return the model for one tree; its result is the root's logits, its loss that of all nodes."""
    word = GetItem("token") >> InputTransform(vocabulary.__getitem__) >> Scalar("int32")
    label = GetItem("label") >> Scalar("int32")
    embedding = Embedding(len(vocabulary), hidden, dtype=dtype, name="embedding")
    leaf_gates, node_gates = Linear(3 * hidden, name="leaf"), Linear(5 * hidden, name="node")
    classify = Linear(CLASSES, name="out")

    def leaf(word: Node) -> State:
        gates = leaf_gates(embedding(word))
        i, o = ops.split(ops.sigmoid(gates[: 2 * hidden]), 2)
        c = i * ops.tanh(gates[2 * hidden :])
        return o * ops.tanh(c), c

    def node(left: State, right: State) -> State:
        gates = node_gates(ops.concat([left[0], right[0]]))
        i, f_left, f_right, o = ops.split(ops.sigmoid(gates[: 4 * hidden]), 4)
        c = i * ops.tanh(gates[4 * hidden :]) + f_left * left[1] + f_right * right[1]
        return o * ops.tanh(c), c

    tree = ForwardDeclaration(output_type=([hidden, dtype], [hidden, dtype]), name="tree")
    cases = {True: word >> Function(leaf), False: Record((tree(), tree())) >> Function(node)}
    loss = Function(lambda s, label: ops.cross_entropy(classify(s[0]), label)) >> Loss()
    labelled = AllOf(OneOf(lambda t: t.is_leaf, cases), label)
    tree.resolve_to(labelled >> AllOf(GetItem(0), loss) >> GetItem(0))
    root: Block = tree() >> GetItem(0) >> classify
    return root


def walk_of(hidden: int, vocabulary: Vocabulary) -> Any:
    """Return the same model as a plain function of a `Tree`."""
    leaf, node, score, root = _cells(hidden, len(vocabulary))
    number = vocabulary.__getitem__

    def tree(t: Any) -> Any:
        if t.is_leaf:
            state = leaf(number(t.token))
        else:
            left, right = t
            state = node(tree(left), tree(right))
        score(state, t.label)
        return state

    return lambda t: root(tree(t))


def _cells(hidden: int, words: int) -> tuple[Any, Any, Any, Any]:
    """Return the cells of a leaf, of an inner node, of a node's loss and of the root's logits."""
    embedding = fb.Embedding(words, hidden, name="embedding")
    leaf_gates, node_gates = fb.Linear(3 * hidden, name="leaf"), fb.Linear(5 * hidden, name="node")
    classify = fb.Linear(CLASSES, name="out")

    @fb.cell
    def leaf(word: Any) -> Any:
        gates = leaf_gates(embedding(word))
        i, o = ops.split(ops.sigmoid(gates[: 2 * hidden]), 2)
        c = i * ops.tanh(gates[2 * hidden :])
        return o * ops.tanh(c), c

    @fb.cell
    def node(left: Any, right: Any) -> Any:
        gates = node_gates(ops.concat([left[0], right[0]]))
        i, f_left, f_right, o = ops.split(ops.sigmoid(gates[: 4 * hidden]), 4)
        c = i * ops.tanh(gates[4 * hidden :]) + f_left * left[1] + f_right * right[1]
        return o * ops.tanh(c), c

    @fb.cell
    def score(state: Any, label: Any) -> None:
        fb.loss(ops.cross_entropy(classify(state[0]), label))

    @fb.cell
    def root(state: Any) -> Any:
        return classify(state[0])

    return leaf, node, score, root


def words_of(trees: Sequence[Tree]) -> Vocabulary:
    """Return the words of trees."""
    return Vocabulary(sorted({word for tree in trees for word in tree.tokens if word}))


def load_trees(directory: Path, limit: int | None = None) -> list[Tree]:
    """Return the training trees of a Stanford Sentiment Treebank directory, or `limit` of them.

    They are drawn by a fixed seed, because the file is sorted: its first trees are mostly positive.
    """
    trees = list(read_sst(directory / "train.txt"))
    if limit is None or limit >= len(trees):
        return trees
    return [trees[i] for i in np.random.default_rng(0).permutation(len(trees))[:limit]]


def draw_batches(trees: Sequence[Tree], size: int, seed: int = 0) -> list[list[Tree]]:
    """Return different batches of that size, drawn from some trees: 16 of single trees, 2 of the largest.

    Sentences differ in length, so a figure from one small batch would be that batch's. A tree is drawn
    again only when all have been.

    >>> [len(draw_batches([Tree.leaf()], size)) for size in (1, 16, 64, 256)]
    [16, 4, 2, 2]
    """
    count = max(2, min(16, 64 // size))
    rng = np.random.default_rng([seed, size])
    order: list[int] = []
    while len(order) < count * size:
        order += rng.permutation(len(trees)).tolist()
    return [[trees[i] for i in order[k * size : (k + 1) * size]] for k in range(count)]


def unseen(trees: Iterable[Tree]) -> list[Tree]:
    """Return copies of trees: programs keep a tree's trace, and these were never traced."""
    return list(map(untraced, trees))


def untraced(tree: Tree) -> Tree:
    """Return a copy of a tree, which was never traced."""
    return Tree(tree.parents, tree.labels, tree.tokens)


def random_trees(count: int, seed: int = 0, words: int = 15_000) -> list[Tree]:
    """Return labelled binary trees with about as many leaves as SST's sentences, and Zipf's words.

    Each span is split at a point drawn uniformly, which makes trees about as tall as SST's.
    """
    rng = np.random.default_rng(seed)
    ranks = 1.0 / np.arange(1, words + 1)
    trees = []
    for _ in range(count):
        leaves = max(2, round(float(rng.gamma(4.4, 4.35))))
        tokens = rng.choice(words, leaves, p=ranks / ranks.sum())
        trees.append(Tree.from_nested(_random_nested(rng, [f"w{i}" for i in tokens])))
    return trees


def _random_nested(rng: np.random.Generator, words: Sequence[str]) -> tuple[object, ...]:
    # spans are short, so recursion is shallow
    label = int(rng.integers(CLASSES))
    if len(words) == 1:
        return (label, words[0])
    at = int(rng.integers(1, len(words)))
    return (label, _random_nested(rng, words[:at]), _random_nested(rng, words[at:]))
