"""Flow: how values pass from one region of the tracing program into another.

A value leaves a region in two ways: in *variables* of the program, to which every branch of a choice,
or every turn of a loop, assigns its result; or as an argument or a result of a recursive function.
"""

from __future__ import annotations

from dataclasses import dataclass

from foldbatch.blocks.block import AnyBlock, build
from foldbatch.blocks.builder import Builder, packed
from foldbatch.blocks.drafts import Procedure
from foldbatch.blocks.tracing import Assign, Invoke, Place, Return
from foldbatch.blocks.values import (
    Object,
    Terminal,
    Value,
    as_object,
    feed,
    leaves,
    new_wires,
    run_time_terminals,
    type_of,
)
from foldbatch.errors import BlockTypeError
from foldbatch.types import OBJECT, VOID, Type


@dataclass(frozen=True, slots=True)
class Variables:
    """Variables of the program that hold a value of a type."""

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
    if slots:  # all at once: what one is given may be what another holds
        targets = tuple(str(slot.expression) for slot in variables.slots)
        builder.add(Assign(builder.blame(), targets, packed(slots)))
    for slot, variable in zip(slots, variables.slots, strict=True):
        feed(slot.wires, variable.wires)


def read(builder: Builder, variables: Variables) -> Value:
    """Return what the variables hold, for the present region."""
    return builder.unflatten(variables.type, iter(variables.slots))


def pass_on(builder: Builder, value: Value) -> Variables:
    """Return the variables that already hold a value, so that regions inside the present one can read it."""
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
