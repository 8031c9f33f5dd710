"""Inference: what blocks make of values of a kind, known before there is a program.

To infer is to build with a scratch builder whose lines nobody keeps. A *pattern* is all that a
block can know of a value while it is built; what a block once made of a pattern it makes again, so
the parts of a large model are inferred once, however often they are put into larger ones.
"""

from __future__ import annotations

from collections.abc import Hashable

from foldbatch.blocks.builder import Builder
from foldbatch.blocks.values import Broadcast, Object, Slot, Value, new_wires, run_time_terminals
from foldbatch.static.graph import Node
from foldbatch.static.op import CALL, UNBATCHED
from foldbatch.types import OBJECT, VOID, Type


class UnknownTypeError(Exception):
    """What a block yields cannot be told yet, as of a declaration without a type."""


def pattern(value: Value) -> Hashable | None:
    """Return what blocks can know of a value; None where they can tell it from others of its type.

    Tensors of a sequence's elements, and the sequences that they come from, have an axis of their own.

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
        case Broadcast():
            inner = pattern(value.value)
            return None if inner is None else ("repeat", inner)
        case tuple():
            items = tuple(map(pattern, value))
            return None if None in items else items
    return None


def renewed(builder: Builder, value: Value) -> Value:
    """Return a value of the same pattern, as if it came from outside."""
    match value:
        case Node() if value.axis is UNBATCHED:
            return value
        case Node():
            return specimen(builder, value.type)
        case Broadcast():
            return Broadcast(renewed(builder, value.value))
        case tuple():
            return tuple(renewed(builder, item) for item in value)
    return value


def specimen(builder: Builder, type_: Type) -> Value:
    """Return a value of a type that stands for any."""
    slots = (Slot(builder.fresh("x"), t, new_wires(t)) for t in run_time_terminals(type_))
    return builder.unflatten(type_, slots)
