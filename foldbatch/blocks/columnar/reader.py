"""Reader: a node of a tree that notes what a function reads of it, and refuses all but a few fields.

A function that is pure returns the same for all nodes that are alike in the fields it read. So it is called
once for them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from foldbatch.trees import TreeNode


class UnseenError(Exception):
    """A function reads what no column is made of."""


def _field(name: str, read: Callable[[TreeNode], Any]) -> Any:
    def get(self: Reader) -> Any:
        self.fields.add(name)
        return read(self.node)

    return property(get)


def _unseen(name: str) -> Any:
    def refuse(self: Reader) -> NoReturn:
        self.unseen = self.unseen or name
        raise UnseenError(name)

    return property(refuse)


class Reader(TreeNode):
    """A node, as functions see it.

    Attributes:
        node: the node itself.
        fields: the names of the fields that were read.
        unseen: the first thing that was read and is none of the fields; empty if there is none.

    >>> from foldbatch.trees import Tree
    >>> reader = Reader(Tree.leaf("NN", "film"))
    >>> reader.label, len(reader), sorted(reader.fields)
    ('NN', 0, ['arity', 'label'])
    """

    __slots__ = ("fields", "node", "unseen")

    def __init__(self, node: TreeNode) -> None:
        self.node = node
        self.fields: set[str] = set()
        self.unseen = ""

    label = _field("label", lambda node: node.label)
    token = _field("token", lambda node: node.token)
    is_leaf = _field("is_leaf", lambda node: node.is_leaf)
    size = _field("size", lambda node: node.size)
    children = _unseen("children")
    parent = _unseen("parent")
    root = _unseen("root")
    height = _unseen("height")
    tree = _unseen("tree")
    index = _unseen("index")

    def words(self) -> tuple[str, ...]:
        """Return the words below the node."""
        self.fields.add("node")
        return self.node.words()

    def _refuse(self, *arguments: Any, **keywords: Any) -> NoReturn:
        self.unseen = self.unseen or "the node as a whole"
        raise UnseenError(self.unseen)

    nodes = leaves = draw = __iter__ = __eq__ = __hash__ = __repr__ = _refuse

    def __len__(self) -> int:
        self.fields.add("arity")
        return len(self.node)

    def __getitem__(self, key: Any) -> Any:
        if key == "label":
            return self.label
        if key == "token":
            return self.token
        self.unseen = self.unseen or f"the item {key!r}"
        raise UnseenError(self.unseen)
