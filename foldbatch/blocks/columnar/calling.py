"""Calling functions of the user on columns: once for all lanes that are alike in what the function reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from foldbatch.blocks.columnar.kinds import Array, Children, Column, Data, Lists, Nodes, Refused, Stored
from foldbatch.blocks.columnar.purity import ATOMS, BUILTINS, Binding, rebound, why_impure
from foldbatch.blocks.columnar.reader import Reader, UnseenError
from foldbatch.trees import Tree, Vocabulary

SPECIMENS = (
    Tree.leaf("a", "b"),
    Tree.leaf(1, "b"),
    Tree([1, -1], ["a", "a"]),
    Tree([2, 2, -1], [1, 1, 1], ["b", "b", None]),
)


class UserFunction:
    """A function of the user, once it is known to be pure.

    Attributes:
        function: the function.
        bindings: what it looks up by name.
        fields: what it has read of nodes so far.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self.bindings: list[Binding] = []
        self.fields: frozenset[str] = frozenset()
        self.impure = why_impure(function, self.bindings)

    def __call__(self, column: Column) -> Column:
        """Return the column of results.

        Raises:
            Refused: where the function is not pure, raises an error, or reads or returns what has no column.
        """
        if self.impure:
            raise Refused(f"{_name(self.function)} may not be called once for many visits: {self.impure}")
        if rebound(self.bindings):
            raise Refused(f"{_name(self.function)} reads a variable that was given another object")
        match column:
            case Nodes():
                return self._of_nodes(column)
            case Data():
                return self._of_data(column)
            case Stored(store) if self.function is len and store.bounds is not None:
                return of_numbers(column.sizes())
            case Stored():
                return self._of_data(column.data())
            case Children(Nodes(forest, index)) if self.function is len:
                return of_numbers(forest.arity[index])
            case Lists() if self.function is len:
                return of_numbers(column.lengths)
        raise Refused(f"{_name(self.function)} reads a list")

    def reads(self) -> frozenset[str]:
        """Return the fields that the function reads of a few small trees.

        Raises:
            Refused: where it reads what has no column.
        """
        self._try()
        return self.fields

    def _of_data(self, column: Data) -> Data:
        present = column.present()
        objects = objects_at(column, present)
        if self.function not in BUILTINS and not are_immutable(objects):
            raise Refused(f"{_name(self.function)} reads an object that may change")
        results = self._call(objects)
        if len(present) == len(column.objects):
            return Data(column.codes, results)
        places = np.zeros(len(column.objects), np.int64)
        places[present] = np.arange(len(present))
        return Data(places[column.codes], results)

    def _call(self, objects: Sequence[Any]) -> list[Any]:
        function = self.function
        try:
            if getattr(function, "__func__", None) is Vocabulary.__getitem__:
                return function.__self__.numbers(objects)  # type: ignore[no-any-return, attr-defined]
            results = list(map(function, objects))
        except UnseenError as error:
            raise Refused(f"{_name(function)} reads {error}") from None
        except Exception as error:
            raise Refused(f"{_name(function)} raises {type(error).__name__}") from error
        for result in results if not set(map(type, results)) <= {*ATOMS} else ():
            _check_result(function, result)
        return results

    def _of_nodes(self, column: Nodes) -> Data:
        if not len(column.index):
            self._try()
            return Data(np.zeros(0, np.int64), [])
        known = self.fields  # another thread may learn more meanwhile
        while True:
            codes, lanes = _alike(column, known)
            forest, readers = column.forest, list[Reader]()
            for lane in lanes.tolist():
                readers.append(Reader(forest.node(int(column.index[lane]))))
            results = self._call(readers)
            self._check(readers)
            fields = known.union(*(reader.fields for reader in readers))
            if fields == known:
                self.fields = fields
                return Data(codes, results)
            known = fields

    def _try(self) -> None:
        """Refuse at once what reads no columns; errors on a node that is none of the user's mean nothing."""
        for tree in SPECIMENS:
            reader = Reader(tree)
            with suppress(Exception):
                self.function(reader)
            self._check([reader])
            self.fields |= reader.fields

    def _check(self, readers: Sequence[Reader]) -> None:
        for reader in readers:
            if reader.unseen:
                raise Refused(f"{_name(self.function)} reads {reader.unseen}")


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
    """Return a field of nodes: ``label``, ``token``, ``is_leaf``, ``arity``, ``size`` or ``node``."""
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
        case "size":
            return of_numbers(index - _at(forest.first, nodes) + 1)
    return Data(np.arange(len(index)), range(len(index)))


def _at(values: Array, nodes: Nodes) -> Array:
    """Return the values of nodes; of all, they are the values themselves."""
    return values if nodes.index is nodes.forest.nodes else values[nodes.index]


def _alike(nodes: Nodes, fields: frozenset[str]) -> tuple[Array, Array]:
    """Return the number of each lane's kind, and a lane of each; lanes of a kind are alike in some fields."""
    if "node" in fields:
        return np.arange(len(nodes.index)), np.arange(len(nodes.index))
    key, kinds = np.zeros(len(nodes.index), np.int64), 1
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


def _is_immutable(value: Any) -> bool:
    return type(value) in ATOMS or (type(value) is tuple and all(map(_is_immutable, value)))


def are_immutable(values: Sequence[Any]) -> bool:
    """Return whether objects are such that nobody can change them."""
    return set(map(type, values)) <= {*ATOMS} or all(map(_is_immutable, values))


def _check_result(function: Any, result: Any) -> None:
    if type(result) in ATOMS:
        return
    if type(result) not in (list, tuple):
        raise Refused(f"{_name(function)} returns a {type(result).__name__}")
    for part in result:
        _check_result(function, part)


def _name(function: Any) -> str:
    if isinstance(function, partial):
        return _name(function.func)
    return str(getattr(function, "__qualname__", type(function).__name__)).replace("<locals>.", "")
