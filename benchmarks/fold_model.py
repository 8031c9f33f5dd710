"""The model of TensorFlow Fold's own benchmark, and the random trees that it runs on.

A leaf is a row of a table; a node has ``h = relu([l; r] W + b)``, gates f_l, f_r, i (sigmoid) and u (tanh)
from ``h U + c``, and the state ``f_l l + f_r r + i u``, one vector. Half the root's square is the loss.

Source: Looks et al. 2017 (Deep Learning with Dynamic Computation Graphs), Table 1; the cell is that of the
benchmark published with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.inside import Node
from foldbatch import (
    AllOf,
    Block,
    Embedding,
    ForwardDeclaration,
    Function,
    GetItem,
    Identity,
    Linear,
    Loss,
    OneOf,
    Record,
    Scalar,
    ops,
)
from foldbatch.trees import Tree


def fold_model(size: int, leaves: int) -> Block[Any, Any]:
    """Return the model for one tree: its result is the root's state, half the square of which is the loss."""
    tree = ForwardDeclaration(output_type=size, name="tree")
    hidden, gates = Linear(size, "relu", name="hidden"), Linear(4 * size, name="gates")

    def node(left: Node, right: Node) -> Node:
        g = gates(hidden(ops.concat([left, right])))
        f_left, f_right, i = ops.split(ops.sigmoid(g[: 3 * size]), 3)
        return f_left * left + f_right * right + i * ops.tanh(g[3 * size :])

    leaf = GetItem("label") >> Scalar("int32") >> Embedding(leaves, size, name="leaf")
    inner = Record((tree(), tree())) >> Function(node)
    tree.resolve_to(OneOf(lambda t: t.is_leaf, {True: leaf, False: inner}))
    loss = Function(lambda y: 0.5 * ops.sum(y * y)) >> Loss()
    return tree() >> AllOf(Identity(), loss) >> GetItem(0)


def random_tree(rng: np.random.Generator, leaves: int) -> Tree:
    """Return a binary tree whose spans are split uniformly; a leaf's label is its word, below `leaves`."""
    parents: list[int] = []
    labels: list[int | None] = []
    todo = [(leaves, -1)]
    while todo:  # a node, then what lies right of it: post-order from its end
        count, parent = todo.pop()
        if count > 1:
            left = int(rng.integers(1, count))
            todo += [(left, len(parents)), (count - left, len(parents))]
        labels.append(None if count > 1 else int(rng.integers(leaves)))
        parents.append(parent)
    last = len(parents) - 1
    return Tree([last - p if p >= 0 else -1 for p in reversed(parents)], labels[::-1])


def words_of(tree: Tree, rng: np.random.Generator) -> Tree:
    """Return a tree of the same shape with other words."""
    leaves = sum(label is not None for label in tree.labels)
    drawn = iter(rng.integers(leaves, size=leaves).tolist())
    return Tree(tree.parents, [None if label is None else next(drawn) for label in tree.labels])
