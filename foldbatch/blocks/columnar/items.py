"""Items: what stands in the objects of a column, by key or one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from foldbatch.blocks.columnar.calling import are_immutable, field
from foldbatch.blocks.columnar.forest import Forest
from foldbatch.blocks.columnar.kinds import (
    Array,
    Children,
    Column,
    Data,
    Lists,
    Nodes,
    Refused,
    Stored,
    ranges,
    take,
)
from foldbatch.blocks.purity import FIELDS
from foldbatch.trees import Tree
from foldbatch.trees.records import ColumnStore

CONTAINERS = (list, tuple, dict)
LACKING = "there is an object without an item that the program reads"


def take_item(column: Column, key: Any, default: tuple[Any, ...] = ()) -> Column:
    """Return ``x[key]`` of each lane; a default stands for missing ones.

    Raises:
        Refused: where an object has no such item and there is no default, or the key or the object is none
            that columns know.
    """
    if isinstance(column, Stored):
        return _item_stored(column, key, default)
    if isinstance(key, slice) and not isinstance(column, Data):
        return _sliced(Lists(*listed(column)), key)
    match column:
        case Nodes(forest, index, depth):
            if type(key) is str and key in FIELDS:
                return field(column, key)
            if type(key) is str and key == "children":
                return Children(column)
            if type(key) is int and not default:
                child = forest.child(index, key)
                if child is None:
                    raise Refused(LACKING)
                return Nodes(forest, child, depth + 1)
        case Children(Nodes()) if type(key) is int and not default:
            return take_item(column.parents, key)
        case Lists(lengths, items) if type(key) is int and items:
            starts = np.cumsum(lengths) - lengths
            place = np.full_like(lengths, key) if key >= 0 else lengths + key
            if ((place < 0) | (place >= lengths)).any():
                raise Refused(LACKING)
            return _whole([take(part, starts + place) for part in items])
        case tuple() if type(key) is int and not default and -len(column) <= key < len(column):
            return column[key]  # type: ignore[no-any-return]
        case Data():
            return _item_of_data(column, key, default)
    raise Refused(f"it reads the item {key!r}")


def _item_stored(column: Stored, key: Any, default: tuple[Any, ...]) -> Column:
    store, rows = column.store, column.rows
    if store.lacks(rows):
        raise Refused(LACKING)
    if store.fields is not None and type(key) is str and key in store.fields:
        return Stored(store.fields[key], rows)
    if store.bounds is not None and store.items is not None and isinstance(key, slice):
        return _sliced(Lists(*listed(column)), key)
    if store.bounds is not None and store.items is not None and type(key) is int:
        starts, lengths = store.bounds[0][rows], store.bounds[1][rows]
        places = np.full_like(lengths, key) if key >= 0 else lengths + key
        if ((places >= 0) & (places < lengths)).all():
            return Stored(store.items, starts + places)
    return _item_of_data(column.data(), key, default)


def _item_of_data(column: Data, key: Any, default: tuple[Any, ...]) -> Column:
    present = column.present()
    objects = [column.objects[place] for place in present.tolist()]
    if not set(map(type, objects)) <= {*CONTAINERS}:
        raise Refused("it reads items of objects that are no trees, lists, tuples or dicts")
    keys = (key.start, key.stop, key.step) if type(key) is slice else (key,)
    if not are_immutable(keys) or not all(are_immutable([*x]) for x in objects if type(x) is dict):
        raise Refused("it reads an item by a key that may change")  # and may note who compares it
    items = []
    for x in objects:
        try:
            items.append(x[key])
        except (LookupError, TypeError) as error:
            if not default or isinstance(error, TypeError):
                raise Refused(LACKING) from None
            items.append(default[0])
    places = np.zeros(len(column.objects), np.int64)
    places[present] = np.arange(len(present))
    return planted(Data(places[column.codes], items))


def planted(column: Data) -> Data | Nodes:
    """Return a column of trees as their roots in a forest, any other column as it is."""
    objects = column.objects
    if not len(objects) or type(objects[0]) is not Tree:
        return column
    if not set(map(type, objects)) == {Tree}:
        raise Refused("some objects are trees, and others are not")
    forest = Forest(objects)
    return Nodes(forest, forest.roots[column.codes])


def _whole(parts: Sequence[Column]) -> Column:
    return parts[0] if len(parts) == 1 else tuple(parts)


def listed(column: Column) -> tuple[Array, tuple[Column, ...]]:
    """Return the lengths of lists, and columns of the parts of all items."""
    if isinstance(column, Lists):
        return column.lengths, column.items
    lengths, items = items_of(column)
    return lengths, (items,)


def _sliced(column: Lists, key: slice) -> Lists:
    starts = np.cumsum(column.lengths) - column.lengths
    sizes, kind = np.unique(column.lengths, return_inverse=True)
    chosen = [range(size)[key] for size in sizes.tolist()]
    counts = np.array([len(some) for some in chosen], np.int64)[kind]
    first = np.array([some.start for some in chosen], np.int64)[kind]
    step = 1 if key.step is None else int(key.step)
    places = np.repeat(starts + first, counts) + step * ranges(np.zeros_like(counts), counts)
    return Lists(counts, tuple(take(part, places) for part in column.items))


def lengths_of(column: Column) -> Array:
    """Return how many items each lane's object has."""
    match column:
        case Nodes(forest, index) | Children(Nodes(forest, index)):
            return forest.arity[index]
        case Lists(lengths):
            return lengths
        case Stored(store) if store.bounds is not None:
            return column.sizes()
        case Stored():
            return lengths_of(column.data())
        case Data(codes, objects):
            present = column.present()
            lengths = np.zeros(len(objects), np.int64)
            for place in present.tolist():
                if type(objects[place]) not in (list, tuple, str):
                    raise Refused("it goes through objects that are no trees, lists, tuples or strings")
                lengths[place] = len(objects[place])
            return lengths[codes]
    raise Refused("it goes through what is no list")


def items_of(column: Column) -> tuple[Array, Column]:
    """Return how many items each lane's object has, and a column of all items."""
    lengths = lengths_of(column)
    match column:
        case Nodes(forest, index, depth) | Children(Nodes(forest, index, depth)):
            starts, order = forest.children
            return lengths, Nodes(forest, order[ranges(starts[index], lengths)], depth + 1)
        case Lists(_, items):
            return lengths, _whole(items)
        case Stored(ColumnStore(bounds=(starts, _), items=ColumnStore() as inner), rows):
            return lengths, Stored(inner, ranges(starts[rows], lengths))
        case Stored():
            return items_of(column.data())
        case Data(codes, objects):
            present = column.present().tolist()
            parts = [objects[place] for place in present]
            sizes = np.fromiter(map(len, parts), np.int64, len(parts))
            starts = np.zeros(len(objects), np.int64)
            starts[present] = np.cumsum(sizes) - sizes
            return lengths, planted(Data(ranges(starts[codes], lengths), list(chain.from_iterable(parts))))
    raise AssertionError(column)
