"""Reading: what blocks and functions of the user read of the objects in a column.

A function is called once for all lanes that are alike in what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from types import MethodType
from typing import Any

import numpy as np

from foldbatch.blocks.columnar.forest import Forest
from foldbatch.blocks.columnar.kinds import (
    Array,
    Column,
    ListColumn,
    NodeColumn,
    ObjectColumn,
    Refused,
    StoredColumn,
    ranges,
    unstored,
)
from foldbatch.blocks.interrupts import interrupted
from foldbatch.blocks.purity import ATOMS, FIELDS, is_constant, reads_of
from foldbatch.model.columns import BadDataError
from foldbatch.trees import Tree, Vocabulary
from foldbatch.trees.records import ColumnStore

# what pure code raises on data that it is not written for
DATA_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    NameError,
    RecursionError,
    TypeError,
    ValueError,
    BadDataError,
)


def apply(function: Any, column: Column) -> Column:
    """Return the column of what a function of the user makes of each object.

    Raises:
        Refused: where the function is not pure, raises an error, or reads or returns what has no column.
    """
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
    except DATA_ERRORS as error:
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


def field(nodes: NodeColumn, name: str) -> ObjectColumn:
    """Return a field of nodes: ``label``, ``token``, ``is_leaf``, ``arity`` or ``size``."""
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
    columns = [field(nodes, name) for name in sorted(fields)]
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

CONTAINERS = (list, tuple, dict)
LACKING = "there is an object without an item that the program reads"


def take_item(column: Column, key: Any, default: tuple[Any, ...] = ()) -> Column:
    """Return ``x[key]`` of each lane; a default stands for missing ones.

    Raises:
        Refused: where an object has no such item and there is no default, or the key or the object is none
            that columns know.
    """
    if isinstance(column, StoredColumn):
        return _item_stored(column, key, default)
    match column:
        case NodeColumn(forest, index, depth):
            if type(key) is str and key in FIELDS:
                return field(column, key)
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
    if not set(map(type, objects)) <= {*CONTAINERS}:
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
    objects = column.objects
    if not len(objects) or type(objects[0]) is not Tree:
        return column
    if not set(map(type, objects)) == {Tree}:
        raise Refused("some objects are trees, and others are not")
    forest = Forest(objects)
    return NodeColumn(forest, forest.roots[column.codes])


def _whole(parts: Sequence[Column]) -> Column:
    return parts[0] if len(parts) == 1 else tuple(parts)


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
            return lengths, _whole(items)
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
