"""Trees as flat arrays, and the order in which a level-by-level program wants their nodes.

In: binary trees as `FlatTree`. Out: a `LevelOrder` of the batch. Levels are depths below the
root, so that all roots meet in the last step and the children of a level are all the rows of the
level below: siblings lie side by side and no step gathers its inputs. That is the best order
known for this model by hand; it is what the peers of the benchmark are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class FlatTree:
    """A binary tree in post-order, the root last.

    Attributes:
        parents: ``[n] int32``, each node's parent; -1 at the root.
        labels: ``[n]``, each node's class.
        words: ``[n]``, each leaf's word; -1 at inner nodes.
    """

    parents: Ints
    labels: Ints
    words: Ints


@dataclass(frozen=True, slots=True)
class LevelOrder:
    """The nodes of a batch in rows: deepest level first, siblings side by side, roots last.

    Attributes:
        labels: ``[rows] int64``.
        sizes: per level, how many rows it has; the deepest level has leaves only.
        leaves: per level, how many of its rows are leaves.
        inner_rows: the rows of inner nodes, ascending.
        leaf_rows: the rows of leaves, ascending.
        words: the distinct words, ascending.
        word_of_leaf: per leaf, its word as a position in `words`.
        sources: ``[rows] int64``: per row, its place in its level with inner nodes put before leaves.
    """

    labels: NDArray[np.int64]
    sizes: list[int]
    leaves: list[int]
    inner_rows: NDArray[np.int64]
    leaf_rows: NDArray[np.int64]
    words: NDArray[np.int64]
    word_of_leaf: NDArray[np.int64]
    sources: NDArray[np.int64]


def level_order(trees: Sequence[FlatTree]) -> LevelOrder:
    """Return the level order of a batch of one tree or more.

    >>> tree = FlatTree(np.array([2, 2, 4, 4, -1]), np.array([0, 1, 2, 3, 4]), np.array([7, 8, -1, 7, -1]))
    >>> order = level_order([tree])
    >>> order.labels, order.sizes, order.leaves, order.words
    (array([0, 1, 2, 3, 4]), [2, 2, 1], [2, 1, 0], array([7, 8]))
    """
    depths = depths_of(trees)
    order = np.argsort(-depths, kind="stable")  # post-order is kept within a level, so siblings stay together
    words = np.concatenate([tree.words for tree in trees])[order]
    is_leaf = words >= 0
    level = depths.max() - depths[order]
    sizes = np.bincount(level)
    leaves = np.bincount(level[is_leaf], minlength=len(sizes))
    inner = sizes - leaves
    assert (2 * inner[1:] == sizes[:-1]).all(), "every inner node has two children"
    distinct, word_of_leaf = np.unique(words[is_leaf], return_inverse=True)
    sources = np.empty(len(order), np.int64)
    sources[~is_leaf] = _ranks(inner)
    sources[is_leaf] = _ranks(leaves) + np.repeat(inner, leaves)
    return LevelOrder(
        np.concatenate([tree.labels for tree in trees])[order].astype(np.int64),
        sizes.tolist(),
        leaves.tolist(),
        np.flatnonzero(~is_leaf),
        np.flatnonzero(is_leaf),
        distinct.astype(np.int64),
        word_of_leaf,
        sources,
    )


def depths_of(trees: Sequence[FlatTree]) -> NDArray[np.int32]:
    """Return each node's distance from its root, by pointer doubling: log2(depth) passes."""
    counts = np.array([len(tree.parents) for tree in trees])
    parents = np.concatenate([tree.parents for tree in trees])
    is_root = parents < 0
    up = np.where(is_root, np.arange(len(parents)), parents + np.repeat(np.cumsum(counts) - counts, counts))
    depths = (~is_root).astype(np.int32)
    while (more := depths[up]).any():
        depths += more
        up = up[up]
    return depths


def _ranks(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0, 1, ... afresh for each count, joined."""
    ends = np.cumsum(counts)
    ranks: NDArray[np.int64] = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    return ranks
