"""What flows through blocks while they are built: one kind of value per kind of type.

At run time a tensor is an int (the number of a value), a sequence a list, an object itself.
While building, a value says which expression of the tracing program will hold it: a tensor is
a symbolic `Node` in the graph of its region, everything else has an `Expression`. A tuple is a
Python tuple of values, void is None.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from foldbatch.blocks.tracing import Expression, Place, Tuple
from foldbatch.errors import BlockValueError
from foldbatch.model.wires import Flow
from foldbatch.static.graph import Node
from foldbatch.static.op import CALL, UNBATCHED
from foldbatch.types import (
    OBJECT,
    VOID,
    BroadcastType,
    ObjectType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    VoidType,
    describe_value,
    terminals,
)


@dataclass(frozen=True, slots=True)
class Object:
    """A Python object; `place` leads to it from the argument."""

    expression: Expression
    place: Place = ()


@dataclass(frozen=True, slots=True)
class Sequence:
    """A finite sequence, held as a list.

    An element is what its type's terminals are at run time: itself where there is one, else a
    flat tuple. `wires` has an entry per terminal, None where it holds no tensor.
    """

    expression: Expression
    element: Type
    wires: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """One value, repeated for whoever reads it."""

    value: Value


Value = Union[Node, Object, Sequence, Repeated, tuple["Value", ...], None]  # noqa: UP007 - it names itself


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal of a value at run time: the expression that holds it, and its wires if any."""

    expression: Expression
    type: Type
    wires: Any = None
    place: Place = ()


def is_int(value: object) -> bool:
    """Whether what a user gave is an int and no bool.

    >>> is_int(3), is_int(True), is_int("3")
    (True, False, False)
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def refuse_no_count(name: str, value: Any, least: int) -> None:
    """Raise `BlockValueError` for what is no whole number of `least` or more."""
    if not is_int(value) or value < least:
        expected, fix = f"a whole number of {least} or more", "leave it out for the default"
        raise BlockValueError(name, expected, describe_value(value), fix)


def type_of(value: Value) -> Type:
    """Return the type of a value."""
    match value:
        case None:
            return VOID
        case Node():
            return value.type
        case Object():
            return OBJECT
        case Sequence():
            return SequenceType(value.element)
        case Repeated():
            return BroadcastType(type_of(value.value))
        case tuple():
            return TupleType(tuple(type_of(item) for item in value))


def leaves(value: Value) -> Iterator[Node | Object | Sequence]:
    """Yield the terminals of a value in order; a broadcast has its value's."""
    match value:
        case None:
            return
        case tuple():
            for item in value:
                yield from leaves(item)
        case Repeated():
            yield from leaves(value.value)
        case _:
            yield value


def as_object(value: Value) -> Value:
    """Return a tuple of objects as the one object that it is; any other value as itself.

    >>> as_object((Object("a"), (Object("b"),)))
    Object(expression=Tuple(items=('a', Tuple(items=('b',)))), place=())
    """
    match value:
        case tuple() if value:
            items = [as_object(item) for item in value]
            objects = [item for item in items if isinstance(item, Object)]
            if len(objects) == len(items):
                return Object(Tuple(tuple(item.expression for item in objects)), objects[0].place)
    return value


def new_wires(type_: Type) -> Any:
    """Return wires for a terminal of a type: one for a tensor, a tuple for a sequence's elements."""
    match type_:
        case TensorType():
            return Flow()
        case SequenceType(element):
            return tuple(new_wires(t) for t in run_time_terminals(element))
        case _:
            return None


def feed(source: Any, target: Any) -> None:
    """Connect the wires of one terminal to those of another of the same type."""
    match source, target:
        case Flow(), Flow():
            source.feed(target)
        case tuple(), tuple():
            for a, b in zip(source, target, strict=True):
                feed(a, b)


def run_time_terminals(type_: Type) -> list[Type]:
    """Return the terminals of a type as functions pass them: broadcasts as what they repeat."""
    types: list[Type] = []
    for terminal in terminals(type_):
        match terminal:
            case BroadcastType(element):
                types += run_time_terminals(element)
            case ObjectType() | TensorType() | SequenceType():
                types.append(terminal)
            case TupleType() | VoidType():
                raise AssertionError(terminal)
    return types


class UnknownTypeError(Exception):
    """The type of a block's result cannot be inferred, as that of a declaration without an output type."""


def pattern(value: Value) -> Hashable | None:
    """Return a key that values share if no block can tell them apart while it is built.

    A block's result is remembered for each pattern of its input, so the parts of a large model are inferred
    once, however often they are put into larger ones. The key is None for sequences and for tensors of a
    sequence's elements: each has an axis of its own, by which blocks tell it from others of its type.

    >>> pattern((Object("x"), None))
    (ObjectType(), VoidType())
    """
    match value:
        case None:
            return VOID
        case Node() if value.axis is UNBATCHED:
            return value.type, "unbatched"
        case Node() if value.axis is CALL:
            return value.type
        case Object():
            return OBJECT
        case Repeated():
            inner = pattern(value.value)
            return None if inner is None else ("repeat", inner)
        case tuple():
            items = tuple(map(pattern, value))
            return None if None in items else items
    return None
