"""Inference: the types of blocks' results, found while blocks are composed, before they are compiled.

To infer a result, a block is built with a scratch builder, whose lines are thrown away. A *pattern* is
everything that a block can see of a value while it is built. So a block's result is remembered for
each pattern of its input, and the parts of a large model are inferred once, however often they are
put into larger ones.
"""

from __future__ import annotations

from collections.abc import Hashable

from foldbatch.blocks.builder import Builder
from foldbatch.blocks.values import Object, Repeated, Terminal, Value, new_wires, run_time_terminals
from foldbatch.static.graph import Node
from foldbatch.static.op import CALL, UNBATCHED
from foldbatch.types import OBJECT, VOID, Type


class UnknownTypeError(Exception):
    """The type of a block's result cannot be inferred, as that of a declaration without an output type."""


def pattern(value: Value) -> Hashable | None:
    """Return a key that values share if no block can tell them apart while it is built.

    The key is None for sequences and for tensors of a sequence's elements: each has an axis of its own,
    by which blocks tell it from others of its type.

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


def renewed(builder: Builder, value: Value) -> Value:
    """Return another value of the same pattern, whose tensors are new inputs."""
    match value:
        case Node() if value.axis is UNBATCHED:
            return value
        case Node():
            return specimen(builder, value.type)
        case Repeated():
            return Repeated(renewed(builder, value.value))
        case tuple():
            return tuple(renewed(builder, item) for item in value)
    return value


def specimen(builder: Builder, type_: Type) -> Value:
    """Return a value of a type, made of new inputs, to build a block with."""
    slots = (Terminal(builder.fresh("x"), t, new_wires(t)) for t in run_time_terminals(type_))
    return builder.unflatten(type_, slots)
