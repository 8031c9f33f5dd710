"""Items: what stands in the objects of a column, by key or one after the other."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from foldbatch.blocks.columnar.calling import field
from foldbatch.blocks.columnar.forest import Forest
from foldbatch.blocks.columnar.kinds import Array, Children, Column, Data, Lists, Nodes, Refused, ranges
from foldbatch.trees import Tree

CONTAINERS = (list, tuple, dict)
LACKING = "there is an object without an item that the program reads"


def take_item(column: Column, key: Any, default: tuple[Any, ...] = ()) -> Column:
    """Return ``x[key]`` of each lane; a default stands for missing ones.

    Raises:
        Refused: where an object has no such item and there is no default, or the key or the object is none
            that columns know.
    """
    match column:
        case Nodes(forest, index, depth):
            if key in ("label", "token") and type(key) is str:
                return field(column, key)
            if type(key) is str and key == "children":
                return Children(column)
            if type(key) is int and not default:
                child = forest.child(index, key)
                if child is None:
                    raise Refused(LACKING)
                return Nodes(forest, child, depth + 1)
        case Children(Nodes(forest, index, depth)) if type(key) is int and not default:
            return take_item(column.parents, key)
        case tuple() if type(key) is int and not default and -len(column) <= key < len(column):
            return column[key]  # type: ignore[no-any-return]
        case Data():
            return _item_of_data(column, key, default)
    raise Refused(f"it reads the item {key!r}")


def _item_of_data(column: Data, key: Any, default: tuple[Any, ...]) -> Column:
    present = column.present()
    objects = [column.objects[place] for place in present.tolist()]
    if not set(map(type, objects)) <= {*CONTAINERS}:
        raise Refused("it reads items of objects that are no trees, lists, tuples or dicts")
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


def lengths_of(column: Column) -> Array:
    """Return how many items each lane's object has."""
    match column:
        case Nodes(forest, index) | Children(Nodes(forest, index)):
            return forest.arity[index]
        case Lists(lengths):
            return lengths
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
            return lengths, items[0] if len(items) == 1 else tuple(items)
        case Data(codes, objects):
            present = column.present().tolist()
            parts = [objects[place] for place in present]
            sizes = np.fromiter(map(len, parts), np.int64, len(parts))
            starts = np.zeros(len(objects), np.int64)
            starts[present] = np.cumsum(sizes) - sizes
            return lengths, planted(Data(ranges(starts[codes], lengths), list(chain.from_iterable(parts))))
    raise AssertionError(column)
