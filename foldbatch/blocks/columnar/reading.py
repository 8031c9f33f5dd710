"""Reading: what blocks and functions of the user read of the objects in a column.

A function is called once for all lanes that are alike in what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import MethodType
from typing import Any

import numpy as np

from foldbatch.blocks.columnar.forest import Forest
from foldbatch.blocks.columnar.kinds import Array, Column, Data, Lists, Nodes, Refused, Stored, ranges, take
from foldbatch.blocks.interrupts import interrupted
from foldbatch.blocks.purity import ATOMS, FIELDS, Reads, is_constant, reads_of
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


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function of the user, on columns."""

    function: Any

    def known(self) -> Reads:
        """Return what the function reads, as it stands now: somebody may have changed what it means.

        Raises:
            Refused: where it is not known to be pure.
        """
        known = reads_of(self.function)
        if isinstance(known, str):
            raise Refused(f"{_name(self.function)} is called at every visit, for it {known}")
        return known

    def __call__(self, column: Column) -> Column:
        """Return the column of results.

        Raises:
            Refused: where the function is not pure, raises an error, or reads or returns what has no column.
        """
        known = self.known()
        match column:
            case Nodes() if known.beyond:
                raise Refused(f"{_name(self.function)} reads {known.beyond}")
            case Nodes():
                codes, lanes = _alike(column, known.fields)
                forest, nodes = column.forest, column.index[lanes].tolist()
                return Data(codes, self._results([forest.node(node) for node in nodes]))
            case Data():
                return self._of_data(column)
            case Stored(store) if self.function is len and store.bounds is not None:
                return of_numbers(column.sizes())
            case Stored():
                return self._of_data(column.data())
            case Lists() if self.function is len:
                return of_numbers(column.lengths)
        raise Refused(f"{_name(self.function)} reads a list")

    def _of_data(self, column: Data) -> Data:
        present = column.present()
        objects = objects_at(column, present)
        counts = self.function is len and set(map(type, objects)) <= {list, tuple, dict, str}
        if not counts and not are_immutable(objects):
            raise Refused(f"{_name(self.function)} reads an object that may change")
        results = self._results(objects)
        if len(present) == len(column.objects):
            return Data(column.codes, results)
        places = np.zeros(len(column.objects), np.int64)
        places[present] = np.arange(len(present))
        return Data(places[column.codes], results)

    def _results(self, objects: Sequence[Any]) -> list[Any]:
        function = self.function
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


def objects_at(column: Data, present: Array) -> list[Any]:
    """Return the objects that stand in lanes, given their places in ascending order."""
    if len(present) == len(column.objects):
        return list(column.objects)
    return [column.objects[place] for place in present.tolist()]


def of_numbers(numbers: Array) -> Data:
    """Return a column of ints, none negative."""
    most = int(numbers.max()) if len(numbers) else 0
    return Data(numbers, range(most + 1))


def field(nodes: Nodes, name: str) -> Data:
    """Return a field of nodes: ``label``, ``token``, ``is_leaf``, ``arity`` or ``size``."""
    forest, index = nodes.forest, nodes.index
    match name:
        case "label":
            codes, labels = forest.labels
            return Data(_at(codes, nodes), labels)
        case "token":
            return Data(*forest.tokens(index))
        case "is_leaf":
            return Data(_at(forest.leaf, nodes), (False, True))
        case "arity":
            return of_numbers(_at(forest.arity, nodes))
    return of_numbers(index - _at(forest.first, nodes) + 1)


def _at(values: Array, nodes: Nodes) -> Array:
    """Return the values of nodes; of all, they are the values themselves."""
    return values if nodes.index is nodes.forest.nodes else values[nodes.index]


def _alike(nodes: Nodes, fields: frozenset[str]) -> tuple[Array, Array]:
    """Return the number of each lane's kind, and a lane of each; lanes of a kind are alike in some fields."""
    key, kinds = np.zeros(len(nodes.index), np.int64), 1
    if not len(key) or "node" in fields:
        return np.arange(len(key)), np.arange(len(key))
    for name in sorted(fields):
        column = field(nodes, name)
        key, kinds = key * len(column.objects) + column.codes, kinds * len(column.objects)
        if kinds > 4 * len(key) + 1000:  # number them anew
            _, key = np.unique(key, return_inverse=True)
            kinds = int(key.max()) + 1
    lane_of = np.full(kinds, -1)
    lane_of[key] = np.arange(len(key))
    present = np.flatnonzero(lane_of >= 0)
    number_of = np.zeros(kinds, np.int32)
    number_of[present] = np.arange(len(present))
    return number_of[key], lane_of[present]


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
    if isinstance(column, Stored):
        return _item_stored(column, key, default)
    match column:
        case Nodes(forest, index, depth):
            if type(key) is str and key in FIELDS:
                return field(column, key)
            if type(key) is str and key == "children":
                return Lists(lengths_of(column), (items_of(column)[1],))
            if type(key) is int and not default:
                child = forest.child(index, key)
                if child is None:
                    raise Refused(LACKING)
                return Nodes(forest, child, depth + 1)
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


def lengths_of(column: Column) -> Array:
    """Return how many items each lane's object has."""
    match column:
        case Nodes(forest, index):
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
        case Nodes(forest, index, depth):
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
