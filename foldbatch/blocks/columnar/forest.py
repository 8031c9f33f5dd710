"""Forest: the arrays of many trees, joined.

Nodes are numbered through all trees, in post-order. So a subtree is a range of nodes, which ends with its
root, the last child of a node stands right before it, and parents come after their children.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain, compress, count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.trees import Tree, TreeNode

Array = NDArray[Any]


class Forest:
    """Trees joined. All arrays have one entry a node, unless they say otherwise.

    Attributes:
        trees: the trees.
        roots: ``[trees]``: the number of each tree's root.
        most: the number of nodes of the largest tree.

    >>> forest = Forest([Tree.from_nested(("S", "I", ("VP", "slept"))[:1]), Tree([2, 2, -1], "abc")])
    >>> forest.roots.tolist(), forest.parents.tolist(), forest.first.tolist(), forest.arity.tolist()
    ([0, 3], [-1, 3, 3, -1], [0, 1, 2, 1], [0, 0, 0, 2])
    """

    def __init__(self, trees: Sequence[Tree]) -> None:
        self.trees = trees
        sizes = np.fromiter([len(tree.labels) for tree in trees], np.int32, len(trees))
        self.roots = np.cumsum(sizes, dtype=np.int32) - 1
        self.size = int(sizes.sum())
        self.most = int(sizes.max()) if len(sizes) else 0
        parts = [tree.parents for tree in trees]
        parents = np.concatenate(parts) if parts else np.zeros(0, np.int32)
        parents = parents + np.repeat(self.roots - sizes + 1, sizes)
        parents[self.roots] = -1
        self.parents: Array = parents

    @cached_property
    def nodes(self) -> Array:
        """The numbers of all nodes."""
        return np.arange(self.size, dtype=np.int32)

    @cached_property
    def arity(self) -> Array:
        """How many children each node has."""
        return counts(self.parents + 1, self.size + 1)[1:]  # after those of -1, the roots

    @cached_property
    def leaf(self) -> Array:
        """Whether each node has no children: 1 or 0."""
        leaf = np.ones(self.size + 1, np.int8)
        leaf[self.parents] = 0  # the entry of -1 is the last
        return leaf[:-1]

    @cached_property
    def first_child(self) -> Array:
        """Each node's first child; of a leaf, itself."""
        first = np.arange(self.size + 1, dtype=np.int32)
        first[self.parents[::-1]] = self.nodes[::-1]  # the last one stays
        return first[:-1]

    @cached_property
    def first(self) -> Array:
        """The first node of each node's subtree."""
        first = self.first_child
        while True:  # twice as far down each time
            further = first[first]
            if np.array_equal(first, further):
                return first
            first = further

    @cached_property
    def children(self) -> tuple[Array, Array]:
        """The children of all nodes: those of node i are ``nodes[starts[i] : starts[i] + arity[i]]``."""
        order = np.argsort(self.parents, kind="stable")[len(self.roots) :]
        return np.cumsum(self.arity) - self.arity, order

    def child(self, nodes: Array, number: int) -> Array | None:
        """Return one child of each of some nodes, counted as Python does; None where one lacks it."""
        arity = self.arity[nodes]
        place = np.full_like(arity, number) if number >= 0 else arity + number
        if ((place < 0) | (place >= arity)).any():
            return None
        if number == 0:
            found: Array = self.first_child[nodes]
        elif (place == arity - 1).all():
            found = nodes - 1
        else:
            starts, order = self.children
            found = order[starts[nodes] + place]
        return found

    @cached_property
    def labels(self) -> tuple[Array, Sequence[Any]]:
        """Codes of the nodes' labels, and the labels that they stand for."""
        labels = [tree.labels for tree in self.trees]
        try:  # most often they are small ints
            return np.frombuffer(b"".join(map(_bytes, labels)), np.uint8), range(256)
        except (TypeError, ValueError):
            numbers = _Numbering()
            codes = numbers.of(chain.from_iterable(labels), self.size)
            return codes, list(numbers)

    @cached_property
    def _words(self) -> tuple[_Numbering, Array]:
        """The tokens met so far, and per node the token's number, -1 where nobody has asked for it."""
        return _Numbering(), np.full(self.size, -1, np.int32)

    def tokens(self, nodes: Array) -> tuple[Array, Sequence[Any]]:
        """Return codes of some nodes' tokens, and the tokens that they stand for."""
        numbers, codes = self._words
        found = codes[nodes]
        if len(found) and found.min() < 0:
            wanted = np.zeros(self.size, bool)
            wanted[nodes] = True
            places = np.flatnonzero(wanted)
            tokens = chain.from_iterable([tree.tokens for tree in self.trees])
            codes[places] = numbers.of(compress(tokens, wanted.tobytes()), len(places))
            found = codes[nodes]
        return found, list(numbers)

    def node(self, number: int) -> TreeNode:
        """Return a node by its number."""
        place = int(np.searchsorted(self.roots, number))
        tree = self.trees[place]
        return TreeNode(tree, number - int(self.roots[place]) + len(tree.labels) - 1)


class _Numbering(dict[Any, int]):
    """Objects, numbered as they come; they are such that equal ones are the same to everybody."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number

    def of(self, objects: Iterable[Any], size: int) -> Array:
        """Return the numbers of some objects."""
        given = list(objects)
        if not self:  # all are new: numbered in one go
            self.update(zip(dict.fromkeys(given), count()))
        return np.fromiter(map(self.__getitem__, given), np.int32, size)


_bytes: Any = bytes  # of a tuple of ints, which may be no bytes


def counts(numbers: Array, size: int) -> Array:
    """Return how often each number below `size` occurs.

    >>> counts(np.array([0, 2, 2], "int32"), 4).tolist()
    [1, 0, 2, 0]
    """
    return np.bincount(numbers.astype(np.int64, copy=False), minlength=size)  # 20 times as fast as of int32
