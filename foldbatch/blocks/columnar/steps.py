"""Steps: what single lines of the tracing program do to the lanes of a scope."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from foldbatch.blocks.columnar.calling import UserFunction, are_immutable
from foldbatch.blocks.columnar.items import lengths_of, listed, picked, take_item
from foldbatch.blocks.columnar.kinds import Array, Column, Data, Lists, Refused, Stored, unstored
from foldbatch.blocks.columnar.scope import Scope

Step: TypeAlias = "Callable[[Scope], None]"


def unknown(node: ast.AST) -> Refused:
    """Return the refusal of a line, or of a part of one, that columns do not know."""
    text = ast.unparse(node).partition("\n")[0]
    return Refused(f"columns cannot do what the tracing program does by {text!r}")


def name_of(node: ast.expr) -> str:
    """Return the name of a variable."""
    if not isinstance(node, ast.Name):
        raise unknown(node)
    return node.id


def as_numbers(column: Column) -> Array:
    """Return references, or the lengths of lists."""
    match column:
        case np.ndarray():
            return column
        case Data(codes, range()):
            return codes
    raise Refused("it passes an object to a cell")


def parts_of(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the parts of the items of a list."""
    if len(columns) != 1 and not (columns and all(isinstance(column, np.ndarray) for column in columns)):
        raise Refused("it makes a list of tuples of objects")
    return tuple(columns)


def copying(target: str, source: str) -> Step:
    """Return a step that makes a list of what can be gone through."""

    def step(scope: Scope) -> None:
        scope.names[target] = Lists(*listed(scope.read(source)))

    return step


def picking(target: str, source: str, place: str) -> Step:
    """Return a step that takes the item of a list whose number another variable holds."""

    def step(scope: Scope) -> None:
        scope.names[target] = picked(scope.read(source), scope.read(place))

    return step


def unpacking(targets: list[str], source: str) -> Step:
    """Return a step that assigns the parts of an item to variables."""

    def step(scope: Scope) -> None:
        column = scope.read(source)
        if not isinstance(column, tuple):
            raise Refused("it unpacks an object")
        scope.names.update(zip(targets, column, strict=True))

    return step


def applying(target: str, function: UserFunction, source: str) -> Step:
    """Return a step that calls a function of the user."""

    def step(scope: Scope) -> None:
        scope.names[target] = function(scope.read(source))

    return step


def taking(target: str, source: str, key: Any, default: tuple[Any, ...] = ()) -> Step:
    """Return a step that reads an item."""

    def step(scope: Scope) -> None:
        scope.names[target] = take_item(scope.read(source), key, default)

    return step


def choosing(target: str, table: Mapping[Any, int], source: str, miss: int) -> Step:
    """Return a step that finds the number of the case for a key."""

    def step(scope: Scope) -> None:
        keys = unstored(scope.read(source))
        if not isinstance(keys, Data):
            raise Refused("it chooses by a node as a whole")
        if not are_immutable(keys.objects) or not are_immutable(
            [*table]
        ):  # others may note who compares them
            raise Refused("it chooses by an object that may change")
        try:
            cases = [table.get(key, miss) for key in keys.objects]
        except TypeError:
            raise Refused("it chooses by an object that has no hash") from None
        scope.names[target] = np.array(cases, np.int32)[keys.codes]

    return step


def condition_of(node: ast.expr) -> Callable[[Scope], Array]:
    """Return what the header of a choice asks, as a function from a scope to bools."""
    match node:
        case ast.Compare(ast.Name(name), [ast.Eq()], [ast.Constant(int(number))]):
            return lambda scope: scope.values(name) == number
        case ast.Compare(ast.Name(name), [ast.Lt()], [ast.Constant(int(number))]):
            return lambda scope: scope.values(name) < number
        case ast.Compare(ast.Name(name), [ast.IsNot()], [ast.Constant(None)]):
            return lambda scope: _present(scope.read(name))
        case ast.BoolOp(ast.And(), tests):
            holds = [condition_of(test) for test in tests]
            return lambda scope: np.logical_and.reduce([hold(scope) for hold in holds])
    raise Refused("it chooses by what columns cannot tell")


def _present(column: Column) -> Array:
    match column:
        case Data(codes, objects):
            return np.array([x is not None for x in objects], bool)[codes]
        case Stored(store, rows):
            return np.ones(len(rows), bool) if store.absent is None else ~store.absent[rows]
        case np.ndarray() | tuple():
            raise Refused("it asks whether a tensor is None")
    return np.ones(len(lengths_of(column)), bool)


def refusing(scope: Scope) -> None:
    """Refuse the lanes, for the program raises an error there; where there are none, all is well."""
    scope.refuses = True
    if scope.size:
        raise Refused("there is an example that the program refuses")


def refusing_rest(name: str, count: int) -> Step:
    """Return a step that refuses objects of more items than are read."""

    def step(scope: Scope) -> None:
        column = scope.read(name)
        if isinstance(column, Data):
            objects = [column.objects[place] for place in column.present().tolist()]
            if not all(type(x) in (list, tuple) and len(x) <= count for x in objects):
                raise Refused("there is an example that the program refuses")
        elif (lengths_of(column) > count).any():
            raise Refused("there is an example that the program refuses")

    return step
