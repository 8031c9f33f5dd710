"""Calling functions of the user on columns: once for all lanes that are alike in what the function reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any

import numpy as np

from foldbatch.blocks.columnar.kinds import Array, Children, Column, Data, Lists, Nodes, Refused, Stored
from foldbatch.blocks.interrupts import interrupted
from foldbatch.blocks.purity import ATOMS, Reads, is_constant, reads_of
from foldbatch.model.columns import BadDataError
from foldbatch.trees import Vocabulary

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
            case Children(Nodes(forest, index)) if self.function is len:
                return of_numbers(forest.arity[index])
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
