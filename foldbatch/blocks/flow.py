"""Flow: how values pass from one region of the tracing program into another, and how sequences are held.

A value leaves a region in two ways: in *variables* of the tracing program, to which every branch of a choice
or every turn of a loop assigns its result; or as an argument or a result of a recursive function.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from foldbatch.blocks.block import AnyBlock, build
from foldbatch.blocks.builder import Builder, packed
from foldbatch.blocks.drafts import (
    Object,
    Procedure,
    Sequence,
    Terminal,
    Value,
    as_object,
    feed,
    leaves,
    new_wires,
    run_time_terminals,
    type_of,
)
from foldbatch.blocks.tracing import Append, Assign, Invoke, Listed, Loop, Place, Return
from foldbatch.errors import BlockTypeError
from foldbatch.types import OBJECT, VOID, Type


@dataclass(frozen=True, slots=True)
class Variables:
    """Variables of the tracing program that hold a value of a type."""

    type: Type
    slots: tuple[Terminal, ...]


def declare(builder: Builder, type_: Type, place: Place = ()) -> Variables:
    """Return new variables; `place` is where objects in them come from."""
    terminals = run_time_terminals(type_)
    return Variables(type_, tuple(Terminal(builder.fresh(), t, new_wires(t), place) for t in terminals))


def assign(builder: Builder, variables: Variables, value: Value, fix: str, expected: str = "") -> None:
    """End a region by giving its result to the variables.

    Raises:
        BlockTypeError: when it is of another type; `fix` and `expected` say what it should be.
    """
    if variables.type == OBJECT:
        value = as_object(value)
    if type_of(value) != variables.type:
        raise BlockTypeError(builder.path, expected or str(variables.type), str(type_of(value)), fix)
    slots = builder.finish(value)
    if slots:  # all at once: a value may be another variable of these
        targets = tuple(str(slot.expression) for slot in variables.slots)
        builder.add(Assign(builder.blame(), targets, packed(slots)))
    for slot, variable in zip(slots, variables.slots, strict=True):
        feed(slot.wires, variable.wires)


def read(builder: Builder, variables: Variables) -> Value:
    """Return the value that variables hold, for the present region."""
    return builder.unflatten(variables.type, iter(variables.slots))


def pass_on(builder: Builder, value: Value) -> Variables:
    """Return the variables that already hold a value, so that inner regions can read it."""
    return Variables(type_of(value), tuple(builder.flatten(value)))


def make_call(builder: Builder, function: Procedure, value: Value) -> Value:
    """Build a call of a recursive function; return its result."""
    subject = next((leaf for leaf in leaves(value) if isinstance(leaf, Object)), None)
    slots = builder.flatten(value)
    for slot, parameter in zip(slots, function.parameters, strict=True):
        feed(slot.wires, parameter.wires)
    names = tuple(builder.fresh() for _ in function.results)
    builder.enter()
    builder.calls(function)
    arguments = tuple(slot.expression for slot in slots)
    builder.add(Invoke(builder.blame(subject), names, function.name, arguments))
    results = []
    for name, result in zip(names, function.results, strict=True):
        wires = new_wires(result.type)
        feed(result.wires, wires)
        results.append(Terminal(name, result.type, wires, subject.place if subject else ()))
    return builder.unflatten(function.output_type, iter(results))


def make_return(builder: Builder, function: Procedure, value: Value) -> None:
    """Build the end of a function."""
    slots = builder.finish(value)
    for slot, result in zip(slots, function.results, strict=True):
        feed(slot.wires, result.wires)
    builder.add(Return(builder.blame(), tuple(slot.expression for slot in slots)))


def apart(builder: Builder, block: AnyBlock, value: Value) -> Value:
    """Build a block as a function of its own and a call of that; return its result."""
    function = builder.declare(object(), "part", type_of(value), VOID)
    with builder.define(function, builder.path) as argument:
        result = build(block, builder, argument)
        function.output_type = type_of(result)
        terminals = run_time_terminals(function.output_type)
        function.results += [Terminal(f"r{i}", t, new_wires(t)) for i, t in enumerate(terminals)]
        make_return(builder, function, result)
    return make_call(builder, function, value)


List = Object | Sequence


def expect_list(block: object, builder: Builder, value: Value) -> List:
    """Return a finite sequence: an object, a sequence, or a tuple of values of one type as a list."""
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
    """Return a finite sequence of tensors; a tuple of values of one type will do."""
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
    """Return the sequence of an empty list that a variable holds."""
    return Sequence(code, element, tuple(map(new_wires, run_time_terminals(element))))


def _feed(slots: list[Terminal], target: Sequence) -> None:
    for slot, wire in zip(slots, target.wires, strict=True):
        feed(slot.wires, wire)


@contextmanager
def loop_over(builder: Builder, value: List, segment: str) -> Iterator[Value]:
    """Build the body of a loop over a list's elements; yields the element."""
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

    The list may be the variable that holds it while nothing has been put into it.
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
