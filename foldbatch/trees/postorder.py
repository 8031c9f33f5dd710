"""Trees as post-order arrays: check them, list children, and flatten linked objects into them.

In come parents as integers, or any objects with children; out come flat arrays. Every function
is a loop or a NumPy call, never a recursion, so depth costs no stack.

Source: the check rests on the stack that builds a tree from a post-order: after node i it
holds ``i + 1 - (children so far)`` nodes.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldbatch.errors import ExampleError, ExampleTypeError
from foldbatch.types import describe_value

Label = str | int | None
Part = TypeVar("Part")
Csr = tuple[NDArray[np.int32], NDArray[np.int32]]
Flat = tuple[NDArray[np.int32], tuple[Label, ...], tuple[str | None, ...]]
LABEL_KINDS: frozenset[type] = frozenset((str, int, type(None)))
TOKEN_KINDS: frozenset[type] = frozenset((str, type(None)))
_SHOWN_STEPS = 8  # a place a million levels down is not spelled out


def as_parents(parents: ArrayLike) -> NDArray[np.int32]:
    """Return a read-only ``[n] int32`` copy of `parents`."""
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
    array = np.array(array, dtype=np.int32)
    array.flags.writeable = False
    return array


def as_entries(name: str, entries: Any, size: int, kinds: frozenset[type], expected: str) -> tuple[Any, ...]:
    """Return labels or tokens, each of exactly one of `kinds`, as a tuple of `size`; by default of None."""
    if entries is None:
        return (None,) * size
    where, fix = f"Tree.{name}", "give one a node"
    if not isinstance(entries, Iterable):
        raise ExampleTypeError(where, f"a list of {size} entries", describe_value(entries), fix)
    given = tuple(entries)
    if len(given) != size:
        raise ExampleError(where, f"{size} entries, as many as parents", f"{len(given)}", fix)
    if not set(map(type, given)) <= kinds:
        place = next(i for i, entry in enumerate(given) if type(entry) not in kinds)
        found = describe_value(given[place])
        raise ExampleTypeError(f"{where}[{place}]", expected, found, "convert it first")
    return given


def children_csr(parents: NDArray[np.int32]) -> Csr:
    """Return ``(starts, indices)``: the children of node i are ``indices[starts[i] : starts[i + 1]]``.

    Shapes: ``starts: [n + 1] int32``, ``indices: [n - 1] int32``, both read-only.

    >>> [array.tolist() for array in children_csr(np.array([2, 2, -1], "int32"))]
    [[0, 0, 0, 2], [0, 1]]
    """
    above = parents[:-1]
    indices = np.argsort(above, kind="stable").astype(np.int32)
    starts = np.zeros(len(parents) + 1, np.int32)
    np.cumsum(np.bincount(above, minlength=len(parents)), out=starts[1:])
    starts.flags.writeable = indices.flags.writeable = False
    return starts, indices


def check_post_order(parents: NDArray[np.int32]) -> Csr:
    """Return the children of all nodes, having made sure that `parents` is one tree in post-order."""
    fix = "number children before parents, left to right, and the root last"
    if parents[-1] != -1:
        raise ExampleError(f"Tree.parents[{len(parents) - 1}]", "-1 at the last node", f"{parents[-1]}", fix)
    nodes = np.arange(len(parents), dtype=np.int32)
    wrong = (parents[:-1] <= nodes[:-1]) | (parents[:-1] >= len(parents))
    if wrong.any():
        node = int(wrong.argmax())
        expected = f"a parent from {node + 1} to {len(parents) - 1}"
        raise ExampleError(f"Tree.parents[{node}]", expected, f"{parents[node]}", fix)
    starts, indices = children_csr(parents)
    # With the stack heights[i] nodes high after node i, the j-th child of p sat at place heights[p] + j.
    # At most one free node sits at each place, so this is enough: see the module's docstring.
    heights = nodes + 1 - starts[1:]
    above = parents[indices]
    rank = nodes[:-1] - starts[above]
    wrong = heights[indices] != heights[above] + rank
    if wrong.any():
        node = int(indices[wrong].min())
        expected = f"post-order: no branch that crosses the one from {node} to {parents[node]}"
        raise ExampleError(f"Tree.parents[{node}]", expected, "one that does", fix)
    return starts, indices


def subtree_sizes(parents: NDArray[np.int32]) -> list[int]:
    """Return for each node how many nodes its subtree has, itself included.

    >>> subtree_sizes(np.array([2, 2, -1], "int32"))
    [1, 1, 3]
    """
    sizes = [1] * len(parents)
    for node, above in enumerate(parents[:-1].tolist()):
        sizes[above] += sizes[node]
    return sizes


def subtree_heights(parents: NDArray[np.int32]) -> list[int]:
    """Return for each node how many levels lie below it.

    >>> subtree_heights(np.array([1, 3, 3, -1], "int32"))
    [0, 1, 0, 2]
    """
    heights = [0] * len(parents)
    for node, above in enumerate(parents[:-1].tolist()):
        heights[above] = max(heights[above], heights[node] + 1)
    return heights


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
            found = "an object that lies below itself"
            raise ExampleError(where(), "a tree", found, "cut the cycle, or stop at objects already seen")
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
