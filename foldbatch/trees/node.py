"""`TreeNode`: one node of a tree, as a view into the tree's arrays; what trees and nodes have in common.

The nodes below a node stand right before it in post-order. So a subtree is a run of the arrays, from
``index - size + 1`` to ``index``, and its words are found without walking.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, overload

from foldbatch.errors import ExampleIndexError, ExampleKeyError, ExampleTypeError
from foldbatch.trees import drawing
from foldbatch.trees.postorder import Label
from foldbatch.types import describe_value

if TYPE_CHECKING:
    from foldbatch.trees.tree import Tree

FIELDS = ("label", "token", "children")
_new = object.__new__  # a node made so, attribute by attribute, takes two thirds of the time


class TreeNode:
    """One node of a tree: a view that holds the tree and the node's place in its arrays.

    A node is indexed by child (``node[0]``, ``node[-1]``, ``node[1:]``) or by field
    (``node["label"]``, ``node["token"]``, ``node["children"]``); its length is its number of
    children, yet it is always true. A `Tree` is a TreeNode too, its own root. Nodes are equal, and
    hash alike, if they stand at the same place in equal trees: ``tree == tree.root``.

    Attributes:
        tree: the tree that the node is part of.
        index: the node's place in the tree's arrays, which are in post-order.

    >>> from foldbatch.trees import Tree
    >>> node = Tree.from_nested(("S", ("NP", "I"), ("VP", "slept"))).root
    >>> node.label, len(node), node[1].token, node[0].parent == node
    ('S', 2, 'slept', True)
    """

    __slots__ = ("index", "tree")

    tree: Tree
    index: int

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

    @property
    def root(self) -> TreeNode:
        """The topmost node of the tree that the node is part of."""
        return TreeNode(self.tree, len(self.tree.labels) - 1)

    @property
    def size(self) -> int:
        """Number of nodes of the subtree: the node and all below it."""
        return int(self.tree._subtree_sizes()[self.index])

    @property
    def height(self) -> int:
        """Number of levels below the node: 0 for a leaf."""
        return int(self.tree._subtree_heights()[self.index])

    def nodes(self) -> Iterator[TreeNode]:
        """Yield every node of the subtree in post-order, this one last."""
        tree = self.tree
        return (TreeNode(tree, index) for index in range(self.index - self.size + 1, self.index + 1))

    def leaves(self) -> Iterator[TreeNode]:
        """Yield the nodes of the subtree that have no children, left to right."""
        tree, first = self.tree, self.index - self.size + 1
        kids = (tree._kids or tree._list_kids())[first : self.index + 1]
        return (TreeNode(tree, index) for index, below in enumerate(kids, first) if not below)

    def words(self) -> tuple[str, ...]:
        """Return the phrase below the node: the leaves' tokens, left to right, but for those that are None.

        >>> from foldbatch.trees import Tree
        >>> node = Tree.from_nested(("S", ("NP", ("D", "the"), ("N", "film")), ("VP", "ended"))).root
        >>> node.words(), node[0].words(), node[1].words()
        (('the', 'film', 'ended'), ('the', 'film'), ('ended',))
        """
        tree, part = self.tree, slice(self.index - self.size + 1, self.index + 1)
        pairs = zip(tree.tokens[part], (tree._kids or tree._list_kids())[part], strict=True)
        return tuple(token for token, below in pairs if token is not None and not below)

    def draw(self, levels: int = 12, nodes: int = 200) -> str:
        """Return a drawing in text, one node a line, cut off below `levels` and after `nodes` nodes.

        >>> from foldbatch.trees import Tree
        >>> print(Tree.from_nested(("S", ("NP", "I"), ("VP", ("V", "slept")))).draw(levels=1))
        S
        ├─ NP I
        └─ VP … 1 more below
        """
        tree = self.tree
        kids, sizes = tree._kids or tree._list_kids(), tree._subtree_sizes()
        return drawing.draw(self.index, kids, tree.labels, tree.tokens, sizes, levels=levels, nodes=nodes)

    def __len__(self) -> int:
        tree = self.tree
        return len((tree._kids or tree._list_kids())[self.index])

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
        tree = self.tree  # fields are read here rather than as properties: models do so at every node
        if key.__class__ is int:
            node = _new(TreeNode)
            try:
                node.tree, node.index = tree, (tree._kids or tree._list_kids())[self.index][key]
            except IndexError:
                pass  # the error is told below
            else:
                return node
        if isinstance(key, str):
            if key == "label":
                return tree.labels[self.index]
            if key == "token":
                return tree.tokens[self.index]
            if key == "children":
                return self.children
            expected = f"a field of {', '.join(map(repr, FIELDS))}"
            raise ExampleKeyError(f"node {self.index}", expected, repr(key), "or a child's number")
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
        return self.index == other.index and (self.tree is other.tree or self.tree._has_arrays_of(other.tree))

    def __hash__(self) -> int:
        return self.tree._hash_of_arrays() ^ (len(self.tree.labels) - 1 - self.index)

    def __repr__(self) -> str:
        return f"TreeNode({self.index}, label={self.label!r}, token={self.token!r}, {len(self)} children)"
