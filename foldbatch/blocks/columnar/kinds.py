"""Kinds of columns: what a variable of the tracing program holds, for many visits at once, and reading it.

A *lane* is one visit, or one turn of a loop. A column has one entry a lane. Numbers of values are plain
arrays of `references`; objects are one of the kinds below, which say what they hold of each lane. A
function of the user is called once for all lanes that are alike in what it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, compress, count
from types import MethodType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foldbatch.blocks.interrupts import interrupted
from foldbatch.blocks.purity import ATOMS, FIELDS, is_constant, reads_of
from foldbatch.model.columns import BadDataError
from foldbatch.trees import Tree, TreeNode, Vocabulary
from foldbatch.trees.records import ColumnStore

Array = NDArray[Any]


class Forest:
    """The arrays of many trees, joined: one entry a node, but for ``roots: [trees]``.

    Nodes are numbered through all trees, in post-order. So a subtree is a range of nodes, which ends with its
    root, the last child of a node stands right before it, and parents come after their children.

    >>> forest = Forest([Tree.from_nested(("S", "I", ("VP", "slept"))[:1]), Tree([2, 2, -1], "abc")])
    >>> forest.roots.tolist(), forest.parents.tolist(), forest.first.tolist(), forest.arity.tolist()
    ([0, 3], [-1, 3, 3, -1], [0, 1, 2, 1], [0, 0, 0, 2])
    """

    def __init__(self, trees: Sequence[Tree]) -> None:
        self.trees = trees
        sizes = np.fromiter([len(tree.labels) for tree in trees], np.int32, len(trees))
        self.roots = np.cumsum(sizes, dtype=np.int32) - 1
        self.size = int(sizes.sum())
        self.most = int(sizes.max(initial=0))  # nodes of the largest tree
        parents = np.concatenate([np.zeros(0, np.int32), *(tree.parents for tree in trees)])
        parents += np.repeat(self.roots - sizes + 1, sizes)
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
        while not np.array_equal(first, further := first[first]):  # twice as far down each time
            first = further
        return first

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
            return self.first_child[nodes]
        if (place == arity - 1).all():
            return nodes - 1
        starts, order = self.children
        found: Array = order[starts[nodes] + place]
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
    """Return how often each number below `size` occurs."""
    return np.bincount(numbers.astype(np.int64, copy=False), minlength=size)  # 20 times as fast as of int32


class Refused(Exception):  # noqa: N818 - is caught, and the examples are traced the ordinary way
    """Something that columns cannot do; `where` is the path of the block."""

    def __init__(self, reason: str, where: str = "") -> None:
        super().__init__(reason)
        self.reason, self.where = reason, where

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" if self.where else self.reason


@dataclass(frozen=True, slots=True, eq=False)
class NodeColumn:
    """A node of a tree in each lane."""

    forest: Forest  # the trees
    index: Array  # ``[lanes]``: the nodes' places in the forest
    depth: int = 0  # how many levels below the node that the present function visits


@dataclass(frozen=True, slots=True, eq=False)
class ObjectColumn:
    """A Python object in each lane."""

    codes: Array  # ``[lanes]``: the places of the lanes' objects in `objects`
    objects: Sequence[Any]  # Python objects; some may stand in no lane

    def compact(self) -> ObjectColumn:
        """Return the same objects without those that stand in no lane."""
        present = np.flatnonzero(counts(self.codes, len(self.objects)))
        if len(present) == len(self.objects):
            return self
        places = np.zeros(len(self.objects), np.int64)
        places[present] = np.arange(len(present))
        return ObjectColumn(places[self.codes], [self.objects[place] for place in present.tolist()])


@dataclass(frozen=True, slots=True, eq=False)
class ListColumn:
    """A list in each lane."""

    lengths: Array  # ``[lanes]``
    items: tuple[Column, ...]  # columns of all items, lane by lane: one, or one for each part of an item


@dataclass(frozen=True, slots=True, eq=False)
class StoredColumn:
    """An object in each lane that lies in columns of the user's data, as those of Arrow arrays."""

    store: ColumnStore  # the column of the data
    rows: Array  # ``[lanes]``: the row of each lane's object

    def data(self) -> ObjectColumn:
        """Return the same objects, made Python objects."""
        codes, objects = self.store.encoded(self.rows)
        return ObjectColumn(codes, objects)

    def sizes(self) -> Array:
        """Return the lengths of the lanes' lists."""
        if self.store.bounds is None or self.store.lacks(self.rows):
            raise Refused("it goes through what is no list")
        return self.store.bounds[1][self.rows]


Column: TypeAlias = "Array | NodeColumn | ObjectColumn | StoredColumn | ListColumn | tuple[Any, ...]"


def unstored(column: Column) -> Column:
    """Return a column with Python objects for those that lie in the user's data; any other as it is."""
    return column.data() if isinstance(column, StoredColumn) else column


def take(column: Column, lanes: Array | None) -> Column:
    """Return some lanes of a column; None stands for all."""
    if lanes is None:
        return column
    match column:
        case np.ndarray():
            return column.take(lanes)
        case NodeColumn():
            return replace(column, index=column.index.take(lanes))
        case ObjectColumn():
            return replace(column, codes=column.codes.take(lanes))
        case StoredColumn(store, rows):
            return StoredColumn(store, rows.take(lanes))
        case tuple():
            return tuple(take(part, lanes) for part in column)
    starts = np.cumsum(column.lengths) - column.lengths
    lengths = column.lengths[lanes]
    return ListColumn(lengths, tuple(take(part, ranges(starts[lanes], lengths)) for part in column.items))


def ranges(starts: Array, lengths: Array) -> Array:
    """Return the numbers from each start on, as many as its length, one range after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total)


def merge(parts: Sequence[tuple[Array, Column]], size: int) -> Column:
    """Return one column of several of one kind, each with its lanes; every lane is in one of them."""
    objects: list[Any] = []
    codes: list[Array] = []
    columns = [unstored(column) for _, column in parts]
    for column in columns:
        if isinstance(column, ObjectColumn):
            codes.append(column.codes.astype(np.int64) + len(objects))
            objects += column.objects
        elif isinstance(column, np.ndarray):
            codes.append(column)
    of_data = {isinstance(column, ObjectColumn) for column in columns}
    if len(codes) < len(columns) or len(of_data) != 1:
        raise Refused("it chooses between nodes, lists, or objects of several kinds")
    result = np.zeros(size, np.result_type(*codes))
    for (lanes, _), column in zip(parts, codes, strict=True):
        result[lanes] = column
    return ObjectColumn(result, objects) if of_data == {True} else result


# what pure code raises on data that it is not written for
DATA_ERRORS = (ArithmeticError, AttributeError, LookupError, NameError, RecursionError, TypeError, ValueError)


def apply(function: Any, column: Column) -> Column:
    """Return the column of what a pure function of the user makes of each object."""
    known = reads_of(function)  # as it stands now: somebody may have changed what it means
    if isinstance(known, str):
        raise Refused(f"{_name(function)} is called at every visit, for it {known}")
    if isinstance(column, StoredColumn) and function is len and column.store.bounds is not None:
        return of_numbers(column.sizes())
    column = unstored(column)
    match column:
        case NodeColumn() if known.beyond:
            raise Refused(f"{_name(function)} reads {known.beyond}")
        case NodeColumn(forest):
            lanes = _alike(column, known.fields)
            nodes = [forest.node(node) for node in column.index[np.array(lanes.objects, np.int64)].tolist()]
            return ObjectColumn(lanes.codes, _results(function, nodes))
        case ObjectColumn():
            column = column.compact()
            counts = function is len and set(map(type, column.objects)) <= {list, tuple, dict, str}
            if not counts and not are_immutable(column.objects):
                raise Refused(f"{_name(function)} reads an object that may change")
            return ObjectColumn(column.codes, _results(function, column.objects))
        case ListColumn(lengths) if function is len:
            return of_numbers(lengths)
    raise Refused(f"{_name(function)} reads a list")


def _results(function: Any, objects: Sequence[Any]) -> list[Any]:
    try:
        if type(function) is MethodType and function.__func__ is Vocabulary.__getitem__:
            vocabulary: Any = function.__self__
            return vocabulary.numbers(objects)  # type: ignore[no-any-return]
        results = list(map(function, objects))
    except (*DATA_ERRORS, BadDataError) as error:
        if interrupted(error):
            raise
        raise Refused(f"{_name(function)} raises {type(error).__name__}") from error
    if not are_immutable(results):  # examples would share it
        raise Refused(f"{_name(function)} returns an object that may change")
    return results


def of_numbers(numbers: Array) -> ObjectColumn:
    """Return a column of ints, none negative."""
    most = int(numbers.max()) if len(numbers) else 0
    return ObjectColumn(numbers, range(most + 1))


def _field(nodes: NodeColumn, name: str) -> ObjectColumn:
    forest, index = nodes.forest, nodes.index
    match name:
        case "label":
            codes, labels = forest.labels
            return ObjectColumn(_at(codes, nodes), labels)
        case "token":
            return ObjectColumn(*forest.tokens(index))
        case "is_leaf":
            return ObjectColumn(_at(forest.leaf, nodes), (False, True))
        case "arity":
            return of_numbers(_at(forest.arity, nodes))
    return of_numbers(index - _at(forest.first, nodes) + 1)


def _at(values: Array, nodes: NodeColumn) -> Array:
    """Return the values of nodes; of all, they are the values themselves."""
    return values if nodes.index is nodes.forest.nodes else values[nodes.index]


def _alike(nodes: NodeColumn, fields: frozenset[str]) -> ObjectColumn:
    """Return for each lane one that is alike in some fields."""
    size = len(nodes.index)
    if not size or "node" in fields:
        return ObjectColumn(np.arange(size), range(size))
    columns = [_field(nodes, name) for name in sorted(fields)]
    key = columns[0].codes if columns else np.zeros(size, np.int64)
    for column in columns[1:]:
        _, key = np.unique(key * np.int64(len(column.objects)) + column.codes, return_inverse=True)
    lane_of = np.zeros(int(key.max()) + 1, np.int64)
    lane_of[key] = np.arange(size)
    return ObjectColumn(key, lane_of.tolist()).compact()


def are_immutable(values: Sequence[Any]) -> bool:
    """Return whether objects are such that nobody can change them."""
    return set(map(type, values)) <= {*ATOMS} or all(map(is_constant, values))


def _name(function: Any) -> str:
    if isinstance(function, partial):
        return _name(function.func)
    return str(getattr(function, "__qualname__", type(function).__name__)).replace("<locals>.", "")


# -- items

LACKING = "there is an object without an item that the program reads"


def take_item(column: Column, key: Any, default: tuple[Any, ...] = ()) -> Column:
    """Return ``x[key]`` of each lane; a default stands for missing ones."""
    if isinstance(column, StoredColumn):
        return _item_stored(column, key, default)
    match column:
        case NodeColumn(forest, index, depth):
            if type(key) is str and key in FIELDS:
                return _field(column, key)
            if type(key) is str and key == "children":
                return ListColumn(lengths_of(column), (items_of(column)[1],))
            if type(key) is int and not default:
                child = forest.child(index, key)
                if child is None:
                    raise Refused(LACKING)
                return NodeColumn(forest, child, depth + 1)
        case ObjectColumn():
            return _item_of_data(column, key, default)
    raise Refused(f"it reads the item {key!r}")


def _item_stored(column: StoredColumn, key: Any, default: tuple[Any, ...]) -> Column:
    store, rows = column.store, column.rows
    if store.lacks(rows):
        raise Refused(LACKING)
    if store.fields is not None and type(key) is str and key in store.fields:
        return StoredColumn(store.fields[key], rows)
    return _item_of_data(column.data(), key, default)


def _item_of_data(column: ObjectColumn, key: Any, default: tuple[Any, ...]) -> Column:
    column = column.compact()
    objects = column.objects
    if not set(map(type, objects)) <= {list, tuple, dict}:
        raise Refused("it reads items of objects that are no trees, lists, tuples or dicts")
    if not is_constant(key) or not all(are_immutable([*x]) for x in objects if type(x) is dict):
        raise Refused("it reads an item by a key that may change")  # and may note who compares it
    items = []
    for x in objects:
        try:
            items.append(x[key])
        except (LookupError, TypeError) as error:
            if not default or isinstance(error, TypeError):
                raise Refused(LACKING) from None
            items.append(default[0])
    return planted(ObjectColumn(column.codes, items))


def planted(column: ObjectColumn) -> ObjectColumn | NodeColumn:
    """Return a column of trees as their roots in a forest, any other column as it is."""
    if not len(column.objects) or type(column.objects[0]) is not Tree:
        return column
    if not set(map(type, column.objects)) == {Tree}:
        raise Refused("some objects are trees, and others are not")
    forest = Forest(column.objects)
    return NodeColumn(forest, forest.roots[column.codes])


def lengths_of(column: Column) -> Array:
    """Return how many items each lane's object has."""
    match column:
        case NodeColumn(forest, index):
            return forest.arity[index]
        case ListColumn(lengths):
            return lengths
        case StoredColumn(store) if store.bounds is not None:
            return column.sizes()
        case StoredColumn():
            return lengths_of(column.data())
        case ObjectColumn():
            column = column.compact()
            if not set(map(type, column.objects)) <= {list, tuple, str}:
                raise Refused("it goes through objects that are no trees, lists, tuples or strings")
            return np.array([*map(len, column.objects)], np.int64)[column.codes]
    raise Refused("it goes through what is no list")


def items_of(column: Column) -> tuple[Array, Column]:
    """Return how many items each lane's object has, and a column of all items."""
    lengths = lengths_of(column)
    match column:
        case NodeColumn(forest, index, depth):
            starts, order = forest.children
            return lengths, NodeColumn(forest, order[ranges(starts[index], lengths)], depth + 1)
        case ListColumn(_, items):
            return lengths, items[0] if len(items) == 1 else items
        case StoredColumn(ColumnStore(bounds=(starts, _), items=ColumnStore() as inner), rows):
            return lengths, StoredColumn(inner, ranges(starts[rows], lengths))
        case StoredColumn():
            return items_of(column.data())
        case ObjectColumn():
            column = column.compact()
            sizes = np.array([*map(len, column.objects)], np.int64)
            starts = np.cumsum(sizes) - sizes
            places = ranges(starts[column.codes], lengths)
            return lengths, planted(ObjectColumn(places, list(chain.from_iterable(column.objects))))
    raise AssertionError(column)
