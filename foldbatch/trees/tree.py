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

Where parents come as integers, or as any objects with children, flat arrays come out. Every function is a
loop or a NumPy call, never a recursion, so depth costs no stack. Source: the check of a post-order rests on
the stack that builds a tree from it: after node i it holds ``i + 1 - (children so far)`` nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar, overload

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldbatch.errors import ExampleError, ExampleIndexError, ExampleKeyError, ExampleTypeError
from foldbatch.system.graphs import left_out, mark_all
from foldbatch.types import describe_value

Label = str | int | None
Part = TypeVar("Part")
Flat = tuple[NDArray[np.int32], tuple[Label, ...], tuple[str | None, ...]]
LABEL_KINDS: frozenset[type] = frozenset((str, int, type(None)))
TOKEN_KINDS: frozenset[type] = frozenset((str, type(None)))
_SHOWN_STEPS = 8  # a place a million levels down is not spelled out


def as_parents(parents: ArrayLike) -> NDArray[np.int32]:
    """Return an ``[n] int32`` copy of `parents`."""
    array = np.asarray(parents)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        fix = "give each node's parent, -1 at the root"
        raise ExampleError("Tree.parents", "a list of integers", describe_value(array), fix)
    if not array.size:
        raise ExampleError("Tree.parents", "one node or more", "none", "a single leaf is Tree([-1], [label])")
    limit = np.iinfo(np.int32)
    if array.min() < limit.min or array.max() > limit.max:
        number = array.min() if array.min() < limit.min else array.max()
        raise ExampleError("Tree.parents", "indices of nodes", str(number), "number nodes from 0")
    return np.array(array, dtype=np.int32)


def as_entries(
    name: str, entries: object, size: int, kinds: frozenset[type], expected: str
) -> tuple[Any, ...]:
    """Return labels or tokens, each of exactly one of `kinds`, as a tuple of `size`; by default of None."""
    if entries is None:
        return (None,) * size
    where, fix = f"Tree.{name}", "give one a node"
    if not isinstance(entries, Iterable):
        raise ExampleTypeError(where, f"a list of {size} entries", describe_value(entries), fix)
    listed = tuple(entries)
    if len(listed) != size:
        raise ExampleError(where, f"{size} entries, as many as parents", f"{len(listed)}", fix)
    if not set(map(type, listed)) <= kinds:
        place = next(i for i, entry in enumerate(listed) if type(entry) not in kinds)
        actual = describe_value(listed[place])
        raise ExampleTypeError(f"{where}[{place}]", expected, actual, "convert it first")
    return listed


def check_post_order(parents: NDArray[np.int32]) -> None:
    """Make sure that `parents` is one tree in post-order."""
    fix = "number children before parents, left to right, and the root last"
    if parents[-1] != -1:
        raise ExampleError(f"Tree.parents[{len(parents) - 1}]", "-1 at the last node", f"{parents[-1]}", fix)
    nodes = np.arange(len(parents), dtype=np.int32)
    wrong = (parents[:-1] <= nodes[:-1]) | (parents[:-1] >= len(parents))
    if wrong.any():
        node = int(wrong.argmax())
        expected = f"a parent from {node + 1} to {len(parents) - 1}"
        raise ExampleError(f"Tree.parents[{node}]", expected, f"{parents[node]}", fix)
    # all children, parent by parent: those of node i end at ends[i], and are counts[i]
    indices = np.argsort(parents[:-1], kind="stable")
    counts = np.bincount(parents[:-1], minlength=len(parents))
    ends = np.cumsum(counts)
    # With the stack heights[i] nodes high after node i, the j-th child of p sat at place heights[p] + j.
    # At most one free node sits at each place, so this is enough: see the module's docstring.
    heights = nodes + 1 - ends
    above = parents[indices]
    rank = nodes[:-1] - (ends - counts)[above]
    wrong = heights[indices] != heights[above] + rank
    if wrong.any():
        node = int(indices[wrong].min())
        expected = f"post-order: no branch that crosses the one from {node} to {parents[node]}"
        raise ExampleError(f"Tree.parents[{node}]", expected, "one that does", fix)


def flatten(
    root: Part,
    expand: Callable[[Part, Callable[[], str]], tuple[Label, str | None, Sequence[Part]]],
    name: str = "root",
    step: str = ".children[{}]",
    first: int = 0,
) -> Flat:
    """Return the parents, labels and tokens, in post-order, of the objects that hang from `root`.

    Args:
        root: the topmost object.
        expand: reads one object's label, token and children; its second argument tells, when
            called, where the object lies, for an error.
        name: what `root` is called in such a place.
        step: how a child is reached from its parent there, with {} for its number.
        first: the number of a first child.
    """
    # Visiting a node, then its children right to left, is post-order backwards.
    above: list[int] = []
    places: list[int] = []
    labels: list[Label] = []
    tokens: list[str | None] = []
    branch: list[tuple[int, Part]] = []  # from the root to here, to notice an object below itself
    branch_ids: set[int] = set()
    stack: list[tuple[Part, int, int]] = [(root, -1, 0)]

    def where(visit: int | None = None) -> str:
        """Return the path from the root to a visited part, for errors."""
        node, steps = len(above) - 1 if visit is None else visit, []
        while node > 0:
            steps.append(step.format(places[node]))
            node = above[node]
        if len(steps) > _SHOWN_STEPS:
            steps[2:-2] = [f"…{len(steps) - 4} steps…"]
        return name + "".join(reversed(steps))

    while stack:
        part, parent, place = stack.pop()
        while branch and branch[-1][0] != parent:
            branch_ids.discard(id(branch.pop()[1]))
        visit = len(above)
        above.append(parent)
        places.append(place)
        if id(part) in branch_ids:
            actual = "an object that lies below itself"
            raise ExampleError(where(), "a tree", actual, "cut the cycle, or stop at objects already seen")
        label, token, children = expand(part, where)
        labels.append(label)
        tokens.append(token)
        if children:
            branch.append((visit, part))
            branch_ids.add(id(part))
            stack.extend([(child, visit, place) for place, child in enumerate(children, first)])
    for title, entries, kinds in (("label", labels, LABEL_KINDS), ("token", tokens, TOKEN_KINDS)):
        if not set(map(type, entries)) <= kinds:
            visit = next(i for i, entry in enumerate(entries) if type(entry) not in kinds)
            expected = f"a {title} of str{', int' if kinds is LABEL_KINDS else ''} or None"
            raise ExampleTypeError(where(visit), expected, describe_value(entries[visit]), "convert it first")
    parents = len(above) - 1 - np.array(above[::-1], np.int32)
    parents[-1] = -1
    return parents, tuple(reversed(labels)), tuple(reversed(tokens))


def expand_nested(part: object, where: Callable[[], str]) -> tuple[Label, str | None, Sequence[object]]:
    """Read one node of nested tuples or lists: ``(label, child, ...)`` or ``(label, "token")``."""
    fix = "write (label, child, child) or (label, 'token')"
    if isinstance(part, str):
        raise ExampleError(where(), "a node", f"{describe_value(part)} beside other children", fix)
    if not isinstance(part, (tuple, list)):
        raise ExampleError(where(), "a tuple or list", describe_value(part), fix)
    if not part:
        raise ExampleError(where(), "a label first", f"an empty {type(part).__name__}", fix)
    label = part[0]
    if type(label) not in LABEL_KINDS:
        raise ExampleError(where(), "a label of str, int or None first", describe_value(label), fix)
    if len(part) == 2 and isinstance(part[1], str):
        return label, part[1], ()
    return label, None, part[1:]


def _show(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text) or "''"


BELOW = "_below"  # the attribute of nodes that were made at once: a list of their children
FIELDS = ("label", "token", "children", "is_leaf", "parent", "root", "size", "height", "index")


class TreeNode:
    """One node of a tree: the tree, the node's place in its arrays, its label and its token.

    A node is indexed by child (``node[0]``, ``node[-1]``, ``node[1:]``) or by field (``node["label"]``):
    ``label``, ``token``, ``children``, ``is_leaf``, ``parent``, ``root``, ``size``, ``height`` and
    ``index``. Its length is its number of children, yet it is always true. A `Tree` is a TreeNode too.
    Nodes are equal, and hash alike, if they stand at the same place in equal trees: ``tree ==
    tree.root``.

    Attributes:
        tree: the tree that the node is part of.
        index: the node's place in the tree's arrays, which are in post-order.
        label: the node's label: a str, an int, or None.
        token: the node's word, or None.
        is_leaf: whether the node has no children.

    >>> from foldbatch.trees import Tree
    >>> node = Tree.from_nested(("S", ("NP", "I"), ("VP", "slept"))).root
    >>> node.label, len(node), node[1].token, node[0].parent == node
    ('S', 2, 'slept', True)
    """

    __slots__ = ()

    tree: Tree
    index: int
    label: Label
    token: str | None
    is_leaf: bool
    _below: list[TreeNode] | None = None  # its children, if all nodes of the tree were made at once

    @property
    def children(self) -> list[TreeNode]:
        """The node's children, left to right."""
        return [*iter(self)]

    @property
    def parent(self) -> TreeNode | None:
        """The node above, or None at the root."""
        above = int(self.tree.parents[self.index])
        return None if above < 0 else node_of(self.tree, above)

    @property
    def root(self) -> TreeNode:
        """The topmost node of the tree that the node is part of."""
        return node_of(self.tree, len(self.tree.labels) - 1)

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
        tree, size = self.tree, self.size
        if size == len(tree.labels):
            return iter(sorted(chain.from_iterable(linked(tree)), key=attrgetter("index")))
        return (node_of(tree, index) for index in range(self.index - size + 1, self.index + 1))

    def leaves(self) -> Iterator[TreeNode]:
        """Yield the nodes of the subtree that have no children, left to right."""
        return (node for node in self.nodes() if node.is_leaf)

    def words(self) -> tuple[str, ...]:
        """Return the phrase below the node: the leaves' tokens, left to right, but for those that are None.

        >>> from foldbatch.trees import Tree
        >>> node = Tree.from_nested(("S", ("NP", ("D", "the"), ("N", "film")), ("VP", "ended"))).root
        >>> node.words(), node[0].words(), node[1].words()
        (('the', 'film', 'ended'), ('the', 'film'), ('ended',))
        """
        return tuple([node.token for node in self.leaves() if node.token is not None])

    def draw(self, levels: int = 12, nodes: int = 200) -> str:
        """Return a drawing in text, one node a line, cut off below `levels` and after `nodes` nodes.

        A node without a label is drawn as ``*``; what is cut off is counted.

        >>> from foldbatch.trees import Tree
        >>> print(Tree.from_nested(("S", ("NP", "I"), ("VP", ("V", "slept")))).draw(levels=1))
        S
        ├─ NP I
        └─ VP … 1 more below
        """
        tree, lines = self.tree, list[str]()
        kids, sizes = kids_of(tree), tree._subtree_sizes()
        stack = [(self.index, "", "", 0)]  # node, what precedes it, what precedes its children, level
        while stack and len(lines) < nodes:
            node, lead, indent, level = stack.pop()
            label, token, below = tree.labels[node], tree.tokens[node], kids[node]
            words = ["*" if label is None else _show(str(label))]
            if token is not None:
                words.append(_show(token))
            if below and level >= levels:
                words.append(f"… {sizes[node] - 1} more below")
            else:
                for place in range(len(below) - 1, -1, -1):
                    elbow, bar = ("├─ ", "│  ") if place < len(below) - 1 else ("└─ ", "   ")
                    stack.append((below[place], indent + elbow, indent + bar, level + 1))
            lines.append(lead + " ".join(words))
        if stack:
            lines.append(f"… {sum(sizes[entry[0]] for entry in stack)} more nodes")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.draw())}</pre>"

    def __len__(self) -> int:
        return len(self._numbers() if self._below is None else self._below)

    def __bool__(self) -> bool:
        return True  # a leaf has length 0, and `if node:` asks whether there is a node

    def __iter__(self) -> Iterator[TreeNode]:
        below = self._below
        return iter([node_of(self.tree, child) for child in self._numbers()] if below is None else below)

    def _numbers(self) -> Sequence[int]:
        return kids_of(self.tree)[self.index]

    @overload
    def __getitem__(self, key: int) -> TreeNode: ...
    @overload
    def __getitem__(self, key: slice) -> list[TreeNode]: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...
    def __getitem__(self, key: int | slice | str) -> Any:
        if isinstance(key, str):
            if key in FIELDS:
                return getattr(self, key)
            expected = f"a field of {', '.join(map(repr, FIELDS))}"
            raise ExampleKeyError(f"node {self.index}", expected, repr(key), "or a child's number")
        try:
            if self._below is not None:
                return self._below[key]
            if isinstance(key, slice):
                return [node_of(self.tree, x) for x in self._numbers()[key]]
            return node_of(self.tree, self._numbers()[key])
        except IndexError:
            expected = "an inner node" if self.is_leaf else f"a child's number below {len(self)}"
            actual = f"a leaf asked for child {key}" if self.is_leaf else f"{key}"
            fix = "test len(node) or node.is_leaf first"
            raise ExampleIndexError(f"node {self.index}", expected, actual, fix) from None
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


class Node(TreeNode, msgspec.Struct, frozen=True, gc=False, eq=False):
    """A node as a struct, as that is made in less time than an object with slots; no tree holds any."""

    tree: Tree
    index: int
    label: Label
    token: str | None
    is_leaf: bool
    _below: list[TreeNode] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return node_of, (self.tree, self.index)


def node_of(tree: Tree, index: int) -> TreeNode:
    """Return a node of a tree."""
    return Node(tree, index, tree.labels[index], tree.tokens[index], not kids_of(tree)[index])


class NodeFactory:
    """The compiled function that makes all nodes of a tree in one call, once there is one."""

    nodes: Callable[..., Any] | None = None


def hasten() -> None:
    """Let nodes of trees be made by a compiled function from now on; see `loops.closures.can_close`."""
    from foldbatch.trees.node_loops import compiled_nodes  # noqa: PLC0415 - it needs llvmlite

    if NodeFactory.nodes is None:
        NodeFactory.nodes = compiled_nodes(Node(node_of, 1 << 40, "label", "token", "is_leaf", []))  # type: ignore[arg-type]


def linked(tree: Tree) -> list[list[TreeNode]]:
    """Return the children of each node, and then the root: to make all nodes at once takes less time."""
    size = len(tree.labels)
    below: list[list[TreeNode]] = [[]] * (size + 1)  # the last has the root, as -1 is above it
    if NodeFactory.nodes is not None and NodeFactory.nodes(
        tree, tree.parents, tree.labels, tree.tokens, below
    ):
        return below
    columns = range(size), tree.parents.tolist(), tree.labels, tree.tokens
    for index, above, label, token in zip(*columns, strict=True):
        kids = below[index]
        node = Node(tree, index, label, token, not kids, kids)
        if siblings := below[above]:
            siblings.append(node)
        else:
            below[above] = [node]
    return below


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
        *("__weakref__", "_hash", "_heights", "_kids", "_sizes", "labels", "parents", "tokens"),
        *("index", "is_leaf", "label", "token"),
    )

    parents: NDArray[np.int32]
    labels: tuple[Label, ...]
    tokens: tuple[str | None, ...]
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
        array = as_parents(parents)
        size = len(array)
        labels = as_entries("labels", labels, size, LABEL_KINDS, "a str, an int or None")
        tokens = as_entries("tokens", tokens, size, TOKEN_KINDS, "a str or None")
        check_post_order(array)
        _fill(self, array, labels, tokens)

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
        return trusted_tree(*flatten(nested, expand_nested, "nested", "[{}]", 1))

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

        return trusted_tree(*flatten(root, expand))

    @property
    def tree(self) -> Tree:  # type: ignore[override]  # stored, it would keep the tree alive
        """The tree itself."""
        return self

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.labels)

    def __iter__(self) -> Iterator[TreeNode]:
        return iter(linked(self)[-2])  # whoever walks a tree asks for nearly all of its nodes

    def _list_kids(self) -> list[Sequence[int]]:
        """Return the list of children of each node, and keep it."""
        # Plain ints in lists: reading one is five times faster than reading arrays, and to go through the
        # parents once takes a fifth of the time that making arrays of children takes.
        kids: list[Any] = [_NO_CHILDREN] * len(self.labels)
        for node, above in enumerate(self.parents[:-1].tolist()):
            siblings = kids[above]
            if siblings:
                siblings.append(node)
            else:
                kids[above] = [node]
        _set(self, "_kids", kids)
        return kids

    @left_out
    def _subtree_sizes(self) -> NDArray[np.int32]:
        """Return the number of nodes below and including each node, ``[n]``, and keep it."""
        if self._sizes is None:
            sizes = [1] * len(self.parents)
            for node, above in enumerate(self.parents[:-1].tolist()):
                sizes[above] += sizes[node]
            _set(self, "_sizes", np.array(sizes, np.int32))
        assert self._sizes is not None
        return self._sizes

    @left_out
    def _subtree_heights(self) -> NDArray[np.int32]:
        """Return the number of levels below each node, ``[n]``, and keep it."""
        if self._heights is None:
            heights = [0] * len(self.parents)
            for node, above in enumerate(self.parents[:-1].tolist()):
                heights[above] = max(heights[above], heights[node] + 1)
            _set(self, "_heights", np.array(heights, np.int32))
        assert self._heights is not None
        return self._heights

    def _has_arrays_of(self, tree: Tree) -> bool:
        return (
            np.array_equal(self.parents, tree.parents)
            and self.labels == tree.labels
            and self.tokens == tree.tokens
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
    """Set the fields of a new tree, which is immutable from then on."""
    _set(tree, "index", len(labels) - 1)
    _set(tree, "label", labels[-1])
    _set(tree, "token", tokens[-1])
    _set(tree, "is_leaf", len(labels) == 1)
    _set(tree, "parents", np.frombuffer(parents.tobytes(), np.int32))  # read-only for ever
    _set(tree, "labels", labels)
    _set(tree, "tokens", tokens)
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
    _fill(tree, np.array(parents, np.int32), tuple(labels), tuple(tokens))
    return tree


# PyTorch's compiler refuses arrays that are read-only for ever, and would compile anew for each tree
for _scope in (globals(), vars(TreeNode), vars(Node), vars(Tree)):
    mark_all(dict(_scope), __name__)
