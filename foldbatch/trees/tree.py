r"""`Tree`: an ordered, labelled tree of any arity as three flat arrays, and its own root node.

Nodes stand in post-order, children before parents and the root last, so one loop over the
arrays is a bottom-up walk. Nothing here recurses: building, comparing, hashing, pickling,
drawing and freeing a tree take memory and time linear in its nodes, whatever its depth::

        S             index   parents  labels  tokens
       / \            0       2        "NP"    "I"
      NP  VP          1       2        "VP"    "slept"
      |   |           2      -1        "S"     None
      I   slept

Source: Zhang and Shasha 1989, section 2 (trees as post-order arrays).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldbatch.trees import postorder
from foldbatch.trees.node import TreeNode
from foldbatch.trees.postorder import LABEL_KINDS, TOKEN_KINDS, Csr, Label

Part = TypeVar("Part")
_NO_CHILDREN: tuple[int, ...] = ()


class Tree(TreeNode):
    """An immutable ordered tree; it is also its own root node, with all that a `TreeNode` has.

    Shapes: ``parents: [n] int32``, the index of each node's parent, -1 at the root, which is
    last; ``labels`` and ``tokens`` hold n entries each. Default labels and tokens are None.

    Raises:
        ExampleError: when the arrays are empty, differ in length or are not in post-order.
        ExampleTypeError: when a label is no str, int or None, or a token no str or None.

    >>> tree = Tree([2, 2, -1], ["NP", "VP", "S"], ["I", "slept", None])
    >>> tree.label, tree.size, tree.height, tree.words(), [node.label for node in tree]
    ('S', 3, 1, ('I', 'slept'), ['NP', 'VP'])
    """

    __slots__ = (
        "__weakref__",
        "_csr",
        "_hash",
        "_heights",
        "_kids",
        "_sizes",
        "labels",
        "parents",
        "tokens",
    )

    parents: NDArray[np.int32]
    labels: tuple[Label, ...]
    tokens: tuple[str | None, ...]
    _csr: Csr | None
    _kids: list[Sequence[int]]
    _sizes: NDArray[np.int32] | None
    _heights: NDArray[np.int32] | None
    _hash: int | None

    def __init__(
        self,
        parents: ArrayLike,
        labels: Sequence[Label] | None = None,
        tokens: Sequence[str | None] | None = None,
    ) -> None:
        array = postorder.as_parents(parents)
        size = len(array)
        labels = postorder.as_entries("labels", labels, size)
        tokens = postorder.as_entries("tokens", tokens, size)
        postorder.check_entries("labels", labels, size, LABEL_KINDS, "a str, an int or None")
        postorder.check_entries("tokens", tokens, size, TOKEN_KINDS, "a str or None")
        _fill(self, array, labels, tokens)
        _set(self, "_csr", postorder.check_post_order(array))

    @classmethod
    def leaf(cls, label: Label = None, token: str | None = None) -> Tree:
        """Return the tree of one node.

        >>> Tree.leaf("NN", "film").words()
        ('film',)
        """
        return cls([-1], [label], [token])

    @classmethod
    def from_nested(cls, nested: object) -> Tree:
        """Return the tree of nested tuples or lists: ``(label, child, ...)`` or ``(label, "token")``.

        A tuple of a label alone is a leaf without a token.

        Raises:
            ExampleError: when a part is none of these, or holds itself; says where, as Python
                would index it.

        >>> Tree.from_nested(("S", ("NP", "I"), ("VP", ("V", "slept")))).height
        2
        """
        return trusted_tree(*postorder.flatten(nested, postorder.expand_nested, "nested", "[{}]", 1))

    @classmethod
    def build(
        cls,
        root: Part,
        children: Callable[[Part], Sequence[Part]],
        label: Callable[[Part], Label] = lambda _: None,
        token: Callable[[Part], str | None] = lambda _: None,
    ) -> Tree:
        """Return the tree that three functions read from any linked objects, each called once a node.

        Args:
            root: the topmost object.
            children: the objects below one, left to right; an object met twice becomes two nodes.
            label: one object's label.
            token: one object's word.

        Raises:
            ExampleError: when an object lies below itself.
            ExampleTypeError: when a label is no str, int or None, or a token no str or None.

        >>> folders = {"/": ["bin", "home"], "home": ["ada"]}
        >>> print(Tree.build("/", lambda name: folders.get(name, []), label=str).draw())
        /
        ├─ bin
        └─ home
           └─ ada
        """

        def expand(part: Part, _: object) -> tuple[Label, str | None, list[Part]]:
            return label(part), token(part), list(children(part))

        return trusted_tree(*postorder.flatten(root, expand))

    @property
    def tree(self) -> Tree:  # type: ignore[override]  # stored, it would keep the tree alive
        """The tree itself."""
        return self

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.labels)

    @property
    def csr(self) -> Csr:
        """The children of all nodes: those of node i are ``indices[starts[i] : starts[i + 1]]``.

        Shapes: ``starts: [n + 1] int32``, ``indices: [n - 1] int32``, read-only.
        """
        if self._csr is None:
            _set(self, "_csr", postorder.children_csr(self.parents))
        assert self._csr is not None
        return self._csr

    def _list_kids(self) -> list[Sequence[int]]:
        # Plain ints in lists: reading one is five times faster than reading the arrays of `csr`, and to go
        # through the parents once takes a fifth of the time that making these arrays takes.
        kids: list[Any] = [_NO_CHILDREN] * len(self.labels)
        for node, above in enumerate(self.parents[:-1].tolist()):
            siblings = kids[above]
            if siblings:
                siblings.append(node)
            else:
                kids[above] = [node]
        _set(self, "_kids", kids)
        return kids

    def _subtree_sizes(self) -> NDArray[np.int32]:
        if self._sizes is None:
            _set(self, "_sizes", np.array(postorder.subtree_sizes(self.parents), np.int32))
        assert self._sizes is not None
        return self._sizes

    def _subtree_heights(self) -> NDArray[np.int32]:
        if self._heights is None:
            _set(self, "_heights", np.array(postorder.subtree_heights(self.parents), np.int32))
        assert self._heights is not None
        return self._heights

    def _has_arrays_of(self, other: Tree) -> bool:
        return (
            np.array_equal(self.parents, other.parents)
            and self.labels == other.labels
            and self.tokens == other.tokens
        )

    def _hash_of_arrays(self) -> int:
        if self._hash is None:
            _set(self, "_hash", hash((self.parents.tobytes(), self.labels, self.tokens)))
        assert self._hash is not None
        return self._hash

    def __setattr__(self, name: str, value: object = None) -> None:
        raise AttributeError(f"Tree.{name}: a tree is immutable; build another")

    __delattr__ = __setattr__

    def __reduce__(self) -> tuple[object, ...]:
        return Tree, (self.parents, self.labels, self.tokens)

    def __repr__(self) -> str:
        return f"Tree({self.label!r}, {self.size} nodes, height {self.height})"


_set = object.__setattr__  # how this module writes to a tree, whose own attributes are closed


def _fill(
    tree: Tree, parents: NDArray[np.int32], labels: tuple[Label, ...], tokens: tuple[str | None, ...]
) -> None:
    _set(tree, "index", len(labels) - 1)
    _set(tree, "parents", parents)
    _set(tree, "labels", labels)
    _set(tree, "tokens", tokens)
    _set(tree, "_csr", None)
    _set(tree, "_kids", [])
    _set(tree, "_sizes", None)
    _set(tree, "_heights", None)
    _set(tree, "_hash", None)


def kids_of(tree: Tree) -> list[Sequence[int]]:
    """Return the numbers of each node's children, in lists that are not to be changed.

    >>> kids_of(Tree([2, 2, -1]))
    [(), (), [0, 1]]
    """
    return tree._kids or tree._list_kids()


def trusted_tree(
    parents: NDArray[np.int32] | list[int], labels: Sequence[Label], tokens: Sequence[str | None]
) -> Tree:
    """Return a tree of arrays that are known to be in post-order; for readers, which build them so."""
    tree = Tree.__new__(Tree)
    array = np.array(parents, np.int32)
    array.flags.writeable = False
    _fill(tree, array, tuple(labels), tuple(tokens))
    return tree
