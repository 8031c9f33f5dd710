"""Lists: how the tracing program holds sequences, walks along them and makes new ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from foldbatch.blocks.builder import Builder, packed
from foldbatch.blocks.tracing import Append, Listed, Loop
from foldbatch.blocks.values import (
    Object,
    Sequence,
    Terminal,
    Value,
    as_object,
    feed,
    new_wires,
    run_time_terminals,
    type_of,
)
from foldbatch.errors import BlockTypeError
from foldbatch.types import OBJECT, Type

List = Object | Sequence


def expect_list(block: object, builder: Builder, value: Value) -> List:
    """Return a finite sequence: an object, a sequence, or a tuple of values of one type as a list.

    Raises:
        BlockTypeError: for anything else.
    """
    match value:
        case Object() | Sequence():
            return value
        case tuple() if len({type_of(item) for item in value}) == 1:
            return from_tuple(builder, value)
        case tuple():
            expected, fix = "one or more values of one type", "use Record to treat the items differently"
            if getattr(block, "initial_state_from_input", True) is False:
                fix = "initial_state_from_input=True reads a pair of a sequence and the first state"
        case _:
            expected, fix = "a finite sequence", "give it a list, a sequence or a tuple"
    raise BlockTypeError(builder.where(block), expected, str(type_of(value)), fix)


def expect_sequence(block: object, builder: Builder, value: Value) -> Sequence:
    """Return a finite sequence of tensors; a tuple of values of one type will do.

    Raises:
        BlockTypeError: for anything else, objects included.
    """
    sequence = expect_list(block, builder, value)
    if isinstance(sequence, Sequence) and OBJECT not in run_time_terminals(sequence.element):
        return sequence
    fix = "make tensors of the elements first, as in Map(Scalar())"
    raise BlockTypeError(builder.where(block), "a sequence of tensors", str(type_of(sequence)), fix)


def element_type(value: List) -> Type:
    """Return the type of a list's elements."""
    return value.element if isinstance(value, Sequence) else OBJECT


def from_tuple(builder: Builder, value: tuple[Value, ...]) -> List:
    """Return a tuple of values of one type as a list."""
    name = builder.fresh("list")
    type_ = type_of(value[0])
    if all(isinstance(item, Object) for item in map(as_object, value)):
        items = [item.expression for item in map(as_object, value) if isinstance(item, Object)]
        builder.assign(name, Listed(tuple(items)))
        return Object(name)
    slots = builder.flatten(value)
    width = len(run_time_terminals(type_))
    rows = [slots[i * width : (i + 1) * width] for i in range(len(value))]
    builder.assign(name, Listed(tuple(map(packed, rows))))
    result = empty_list(name, type_)
    for row in rows:
        _feed(row, result)
    return result


def empty_list(code: str, element: Type) -> Sequence:
    """Return the sequence that a variable holds, before anything is put into it."""
    return Sequence(code, element, tuple(map(new_wires, run_time_terminals(element))))


def _feed(slots: list[Terminal], target: Sequence) -> None:
    for slot, wire in zip(slots, target.wires, strict=True):
        feed(slot.wires, wire)


@contextmanager
def each(builder: Builder, value: List, segment: str) -> Iterator[Value]:
    """Build what is done for each element of a list; yields the element."""
    index, name = builder.fresh("i"), builder.fresh("item")
    subject = value if isinstance(value, Object) else None
    with builder.at(segment):
        blame = builder.blame(subject, "a sequence")
        with builder.inside(loop=True) as body:
            if isinstance(value, Object):
                yield Object(name, (*value.place, f"[{{{index}}}]"))
            else:
                yield builder.element(value, name)
        builder.add(Loop(blame, index, name, value.expression, tuple(body)))


def append(builder: Builder, value: Value, target: List | str) -> List:
    """Put a value at the end of a list, ending the region; return the list.

    Args:
        builder: the builder.
        value: the value.
        target: the list, or the variable that holds it while nothing has been put into it.
    """
    code = target if isinstance(target, str) else str(target.expression)
    item = as_object(value)
    if isinstance(item, Object) and not isinstance(target, Sequence):
        builder.finish(None)
        builder.add(Append(builder.blame(), code, item.expression))
        return Object(code)
    slots = builder.finish(value)
    builder.add(Append(builder.blame(), code, packed(slots)))
    result = empty_list(code, type_of(value)) if not isinstance(target, Sequence) else target
    _feed(slots, result)
    return result
