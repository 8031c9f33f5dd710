"""The model of TensorFlow Fold's own benchmark, and the random trees that it runs on.

A leaf is a row of a table; a node has ``h = relu([l; r] W + b)``, gates f_l, f_r, i (sigmoid) and u (tanh)
from ``h U + c``, and the state ``f_l l + f_r r + i u``, one vector. Half the root's square is the loss.

Source: Looks et al. 2017 (Deep Learning with Dynamic Computation Graphs), Table 1; the cell is that of the
benchmark published with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from foldbatch.errors import ExampleError
from foldbatch.trees import Tree

Rows = NDArray[np.int64]


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


@dataclass(frozen=True, slots=True)
class Shape:
    """A binary tree's shape, inner nodes numbered level by level from the lowest.

    A state lies in a slot, where its parent looks: node k reads slots 2 k and 2 k + 1, the root's is last.

    Attributes:
        levels: how many nodes each level has; a node lies one level above the higher of its children.
        node_slots: ``[inner nodes]``, where each node's state goes.
        leaf_slots: ``[leaves]``, where each leaf's goes, from left to right.
    """

    levels: tuple[int, ...]
    node_slots: Rows
    leaf_slots: Rows


def shape_of(tree: Tree) -> Shape:
    """Return the shape of a binary tree of two leaves or more.

    >>> shape_of(Tree.from_nested((0, (1,), (0, (2,), (3,)))))
    Shape(levels=(1, 1), node_slots=array([3, 4]), leaf_slots=array([2, 0, 1]))
    """
    parents, sizes = tree.parents.tolist(), [len(node) for node in tree.nodes()]
    if len(parents) < 3 or set(sizes) != {0, 2}:
        raise ExampleError("shape_of", "a binary tree of two leaves or more", f"{tree.size} nodes")
    heights = [0] * len(parents)
    for node, parent in enumerate(parents[:-1]):
        heights[parent] = max(heights[parent], heights[node] + 1)
    inner = sorted((node for node, size in enumerate(sizes) if size), key=heights.__getitem__)
    number = {node: k for k, node in enumerate(inner)}
    slots, seen = [2 * len(inner)] * len(parents), [0] * len(parents)
    for node, parent in enumerate(parents[:-1]):  # in post-order a left sibling comes first
        slots[node] = 2 * number[parent] + seen[parent]
        seen[parent] += 1
    leaves = [slots[node] for node, size in enumerate(sizes) if not size]
    levels = np.bincount([heights[node] for node in inner])[1:]
    return Shape(tuple(levels.tolist()), np.array([slots[node] for node in inner]), np.array(leaves))


def rows_of(slots: Rows, batch: int, inner: int) -> Rows:
    """Return the rows of slots, tree by tree within each."""
    pairs, sides = np.divmod(slots, 2)
    # the root's slot has no sibling
    rows = np.where(
        slots[:, None] == 2 * inner,
        2 * inner * batch + np.arange(batch),
        2 * (pairs[:, None] * batch + np.arange(batch)) + sides[:, None],
    )
    return rows.reshape(-1)
