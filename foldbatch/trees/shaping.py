"""Trees of another arity: nodes of at most two children, and no nodes of a single child.

Source: both are usual ahead of binary models, as Chomsky's normal form is ahead of parsers; nltk calls them
`chomsky_normal_form` and `collapse_unary`.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from foldbatch.errors import BlockValueError, ExampleTypeError
from foldbatch.trees.tree import Label, Tree, kids_of, trusted_tree
from foldbatch.types import describe_value


def binarise(
    tree: Tree,
    branching: Literal["right", "left"] = "right",
    label: Callable[[Label], Label] = lambda _: None,
) -> Tree:
    """Return a tree in which each node has two children at most: others get nodes in between.

    The nodes of the tree keep order, labels and tokens. Nodes in between have no token, and no label either
    unless `label` gives them one; losses and metrics leave out nodes without labels.

    Args:
        tree: a tree of any arity, however deep.
        branching: ``"right"`` for ``(a (b (c d)))`` of four children, ``"left"`` for ``(((a b) c) d)``.
        label: takes the label of a node of three children or more, and returns that of nodes in between.

    Raises:
        ExampleTypeError: when it is no `Tree`, or `label` returns neither a str, an int nor None.
        BlockValueError: when `branching` is neither of both.

    >>> tree = Tree.from_nested(("NP", ("D", "a"), ("A", "fine"), ("N", "film")))
    >>> print(binarise(tree).draw())
    NP
    ├─ D a
    └─ *
       ├─ A fine
       └─ N film
    >>> binarise(tree, "left", label=lambda above: f"{above}'")[0].label
    "NP'"
    """
    _check_tree("binarise", tree)
    if branching not in ("right", "left"):
        expected = "branching as 'right' or 'left'"
        raise BlockValueError("binarise", expected, describe_value(branching), "leave it out for 'right'")
    shape = _Shape()
    children = kids_of(tree)
    numbers: list[int] = []  # of the nodes in the new tree
    joined: dict[int, int] = {}  # of a node whose children come left to right: the node above the first ones
    above = tree.parents.tolist()
    rank = [0] * tree.size  # of each node among its siblings
    for siblings in children:
        for place, child in enumerate(siblings):
            rank[child] = place
    for node, below in enumerate(children):
        node_label = tree.labels[node]
        if len(below) < 3 or branching == "left":
            ends = (
                [joined[node], numbers[below[-1]]] if node in joined else [numbers[child] for child in below]
            )
        else:
            between = _checked_label(label(node_label))
            last = numbers[below[-1]]
            for child in reversed(below[1:-1]):
                last = shape.add([numbers[child], last], between, None)
            ends = [numbers[below[0]], last]
        number = shape.add(ends, node_label, tree.tokens[node])
        numbers.append(number)
        parent = above[node]
        if branching == "left" and parent >= 0 and 0 < rank[node] < len(children[parent]) - 1:
            first = joined[parent] if parent in joined else numbers[children[parent][0]]
            joined[parent] = shape.add([first, number], _checked_label(label(tree.labels[parent])), None)
    return shape.tree()


def _topmost(labels: Sequence[Label]) -> Label:
    return next((label for label in labels if label is not None), None)


def collapse_unary(tree: Tree, label: Callable[[Sequence[Label]], Label] = _topmost) -> Tree:
    """Return a tree without nodes of a single child: such a node and its child become one.

    Leaves keep their order and tokens. A node that has a token of its own, as a word of a dependency tree,
    stays above its child.

    Args:
        tree: a tree of any arity, however deep.
        label: takes the labels of nodes that become one, from the top, and returns the label of that node;
            by default the topmost that is not None.

    Raises:
        ExampleTypeError: when it is no `Tree`, or `label` returns neither a str, an int nor None.

    >>> tree = Tree.from_nested(("S", ("NP", ("N", "films")), ("VP", ("V", "end"))))
    >>> collapse_unary(tree)
    Tree('S', 3 nodes, height 1)
    >>> [node.label for node in collapse_unary(tree, "+".join)]
    ['NP+N', 'VP+V']
    """
    _check_tree("collapse_unary", tree)
    shape = _Shape()
    numbers: list[int] = []  # of the nodes in the new tree
    chains: dict[int, list[Label]] = {}  # labels of nodes that become one, from the bottom
    for node, below in enumerate(kids_of(tree)):
        node_label = tree.labels[node]
        if len(below) == 1 and tree.tokens[node] is None:
            number = numbers[below[0]]
            chains.setdefault(number, [shape.labels[number]]).append(node_label)
        else:
            number = shape.add([numbers[child] for child in below], node_label, tree.tokens[node])
        numbers.append(number)
    for number, labels in chains.items():
        shape.labels[number] = _checked_label(label(labels[::-1]))
    return shape.tree()


class _Shape:
    """The nodes of a new tree, in post-order."""

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.labels: list[Label] = []
        self.tokens: list[str | None] = []

    def add(self, children: Sequence[int], label: Label, token: str | None) -> int:
        """Add a node above others; return its number."""
        number = len(self.parents)
        for child in children:
            self.parents[child] = number
        self.parents.append(-1)
        self.labels.append(label)
        self.tokens.append(token)
        return number

    def tree(self) -> Tree:
        return trusted_tree(self.parents, self.labels, self.tokens)


def _check_tree(where: str, tree: object) -> None:
    if not isinstance(tree, Tree):
        raise ExampleTypeError(where, "a tree", describe_value(tree), "give one Tree at a time")


def _checked_label(label: object) -> Label:
    if label is not None and (isinstance(label, bool) or not isinstance(label, str | int)):
        raise ExampleTypeError("label", "a str, an int or None", describe_value(label), "return one of them")
    return label
