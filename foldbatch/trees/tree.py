r"""`Tree`: an ordered, labelled tree of any arity as three flat arrays, and `TreeNode`, a view into it.

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

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldbatch.errors import ExampleIndexError, ExampleKeyError, ExampleTypeError
from foldbatch.trees import drawing, postorder
from foldbatch.trees.postorder import LABEL_KINDS, TOKEN_KINDS, Csr, Label
from foldbatch.types import describe_value

Part = TypeVar("Part")
FIELDS = ("label", "token", "children")
_NO_CHILDREN: tuple[int, ...] = ()


class TreeNode:
    """One node of a tree: a view that holds the tree and the node's place in its arrays.

    A node is indexed by child (``node[0]``, ``node[-1]``, ``node[1:]``) or by field
    (``node["label"]``, ``node["token"]``, ``node["children"]``); its length is its number of
    children, yet it is always true.

    >>> node = Tree.from_nested(("S", ("NP", "I"), ("VP", "slept"))).root
    >>> node.label, len(node), node[1].token, node[0].parent == node
    ('S', 2, 'slept', True)
    """

    __slots__ = ("index", "tree")

    def __init__(self, tree: Tree, index: int) -> None:
        self.tree = tree
        self.index = index

    @property
    def label(self) -> Label:
        """The node's label: a str, an int, or None."""
        return self.tree.labels[self.index]

    @property
    def token(self) -> str | None:
        """The node's word, or None."""
        return self.tree.tokens[self.index]

    @property
    def children(self) -> list[TreeNode]:
        """The node's children, left to right."""
        tree = self.tree
        nodes = []
        for child in (tree._kids or tree._list_kids())[self.index]:
            nodes.append(TreeNode(tree, child))
        return nodes

    @property
    def is_leaf(self) -> bool:
        """Whether the node has no children."""
        tree = self.tree
        return not (tree._kids or tree._list_kids())[self.index]

    @property
    def parent(self) -> TreeNode | None:
        """The node above, or None at the root."""
        above = int(self.tree.parents[self.index])
        return None if above < 0 else TreeNode(self.tree, above)

    def __len__(self) -> int:
        return len((self.tree._kids or self.tree._list_kids())[self.index])

    def __bool__(self) -> bool:
        return True  # a leaf has length 0, and `if node:` asks whether there is a node

    def __iter__(self) -> Iterator[TreeNode]:
        return iter(self.children)

    @overload
    def __getitem__(self, key: int) -> TreeNode: ...
    @overload
    def __getitem__(self, key: slice) -> list[TreeNode]: ...
    @overload
    def __getitem__(self, key: str) -> Label | list[TreeNode]: ...
    def __getitem__(self, key: int | slice | str) -> TreeNode | list[TreeNode] | Label:
        if isinstance(key, str):
            if key in FIELDS:
                field: Label | list[TreeNode] = getattr(self, key)
                return field
            expected = f"a field of {', '.join(map(repr, FIELDS))}"
            raise ExampleKeyError(f"node {self.index}", expected, repr(key), "or a child's number")
        tree = self.tree
        kids = (tree._kids or tree._list_kids())[self.index]
        if isinstance(key, slice):
            return [TreeNode(tree, child) for child in kids[key]]
        try:
            return TreeNode(tree, kids[key])
        except IndexError:
            expected = f"a child's number below {len(kids)}" if kids else "an inner node"
            found = f"{key}" if kids else f"a leaf asked for child {key}"
            fix = "test len(node) or node.is_leaf first"
            raise ExampleIndexError(f"node {self.index}", expected, found, fix) from None
        except TypeError:
            expected = "a child's number, a slice or a field's name"
            raise ExampleTypeError(
                f"node {self.index}", expected, describe_value(key), "use one of them"
            ) from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeNode):
            return NotImplemented
        return self.index == other.index and (self.tree is other.tree or self.tree == other.tree)

    def __hash__(self) -> int:
        return hash((self.tree, self.index))

    def __repr__(self) -> str:
        return f"TreeNode({self.index}, label={self.label!r}, token={self.token!r}, {len(self)} children)"


class Tree:
    """An immutable ordered tree; it also behaves as its own root node.

    Shapes: ``parents: [n] int32``, the index of each node's parent, -1 at the root, which is
    last; ``labels`` and ``tokens`` hold n entries each. Default labels and tokens are None.

    Raises:
        ExampleError: when the arrays are empty, differ in length or are not in post-order.
        ExampleTypeError: when a label is no str, int or None, or a token no str or None.

    >>> tree = Tree([2, 2, -1], ["NP", "VP", "S"], ["I", "slept", None])
    >>> tree.label, tree.size, tree.height, tree.words(), [node.label for node in tree]
    ('S', 3, 1, ('I', 'slept'), ['NP', 'VP'])
    """

    __slots__ = ("__weakref__", "_csr", "_hash", "_height", "_kids", "labels", "parents", "tokens")

    parents: NDArray[np.int32]
    labels: tuple[Label, ...]
    tokens: tuple[str | None, ...]
    _csr: Csr | None
    _kids: list[Sequence[int]]
    _height: int | None
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
    def root(self) -> TreeNode:
        """The topmost node."""
        return TreeNode(self, len(self.labels) - 1)

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.labels)

    @property
    def label(self) -> Label:
        """The root's label."""
        return self.labels[-1]

    @property
    def token(self) -> str | None:
        """The root's word, or None."""
        return self.tokens[-1]

    @property
    def children(self) -> list[TreeNode]:
        """The root's children, left to right."""
        return self.root.children

    @property
    def is_leaf(self) -> bool:
        """Whether the tree is a single node."""
        return len(self.labels) == 1

    @property
    def height(self) -> int:
        """Number of levels below the root: 0 for a single node."""
        if self._height is None:
            parents = self.parents.tolist()
            heights = [0] * len(parents)
            for node, above in enumerate(parents[:-1]):
                heights[above] = max(heights[above], heights[node] + 1)
            _set(self, "_height", heights[-1])
        assert self._height is not None
        return self._height

    @property
    def csr(self) -> Csr:
        """The children of all nodes: those of node i are ``indices[starts[i] : starts[i + 1]]``.

        Shapes: ``starts: [n + 1] int32``, ``indices: [n - 1] int32``, read-only.
        """
        if self._csr is None:
            _set(self, "_csr", postorder.children_csr(self.parents))
        assert self._csr is not None
        return self._csr

    def nodes(self) -> Iterator[TreeNode]:
        """Yield every node in post-order."""
        return (TreeNode(self, index) for index in range(len(self.labels)))

    def leaves(self) -> Iterator[TreeNode]:
        """Yield the nodes without children, left to right."""
        kids = self._kids or self._list_kids()
        return (TreeNode(self, index) for index, below in enumerate(kids) if not below)

    def words(self) -> tuple[str, ...]:
        """Return the leaves' tokens, left to right; a leaf without one is passed over."""
        kids = self._kids or self._list_kids()
        return tuple(
            token for token, below in zip(self.tokens, kids, strict=True) if token is not None and not below
        )

    def draw(self, levels: int = 12, nodes: int = 200) -> str:
        """Return a drawing in text, one node a line, cut off below `levels` and after `nodes` nodes.

        >>> print(Tree.from_nested(("S", ("NP", "I"), ("VP", ("V", "slept")))).draw(levels=1))
        S
        ├─ NP I
        └─ VP … 1 more below
        """
        kids = self._kids or self._list_kids()
        return drawing.draw(self.parents, kids, self.labels, self.tokens, levels=levels, nodes=nodes)

    def _list_kids(self) -> list[Sequence[int]]:
        # Plain ints in lists: reading one is five times faster than reading the arrays.
        kids: list[Sequence[int]] = [_NO_CHILDREN] * len(self.labels)
        starts, indices = (array.tolist() for array in self.csr)
        for node, (start, end) in enumerate(pairwise(starts)):
            if start != end:
                kids[node] = indices[start:end]
        _set(self, "_kids", kids)
        return kids

    def __len__(self) -> int:
        return len(self.root)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[TreeNode]:
        return iter(self.root.children)

    @overload
    def __getitem__(self, key: int) -> TreeNode: ...
    @overload
    def __getitem__(self, key: slice) -> list[TreeNode]: ...
    @overload
    def __getitem__(self, key: str) -> Label | list[TreeNode]: ...
    def __getitem__(self, key: int | slice | str) -> TreeNode | list[TreeNode] | Label:
        return self.root[key]

    def __setattr__(self, name: str, value: object = None) -> None:
        raise AttributeError(f"Tree.{name}: a tree is immutable; build another")

    __delattr__ = __setattr__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return (
            np.array_equal(self.parents, other.parents)
            and self.labels == other.labels
            and self.tokens == other.tokens
        )

    def __hash__(self) -> int:
        if self._hash is None:
            _set(self, "_hash", hash((self.parents.tobytes(), self.labels, self.tokens)))
        assert self._hash is not None
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return Tree, (self.parents, self.labels, self.tokens)

    def __repr__(self) -> str:
        return f"Tree({self.label!r}, {self.size} nodes, height {self.height})"


_set = object.__setattr__  # how this module writes to a tree, whose own attributes are closed


def _fill(
    tree: Tree, parents: NDArray[np.int32], labels: tuple[Label, ...], tokens: tuple[str | None, ...]
) -> None:
    _set(tree, "parents", parents)
    _set(tree, "labels", labels)
    _set(tree, "tokens", tokens)
    _set(tree, "_csr", None)
    _set(tree, "_kids", [])
    _set(tree, "_height", None)
    _set(tree, "_hash", None)


def trusted_tree(
    parents: NDArray[np.int32] | list[int], labels: Sequence[Label], tokens: Sequence[str | None]
) -> Tree:
    """Return a tree of arrays that are known to be in post-order; for readers, which build them so."""
    tree = Tree.__new__(Tree)
    array = np.array(parents, np.int32)
    array.flags.writeable = False
    _fill(tree, array, tuple(labels), tuple(tokens))
    return tree
