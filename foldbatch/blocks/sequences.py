"""Blocks on sequences of any length."""

from __future__ import annotations

from typing import Any

from foldbatch.blocks.block import Block, as_block, build
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.values import (
    Broadcast,
    Object,
    Sequence,
    Value,
    feed,
    new_wires,
    run_time_terminals,
    type_of,
)
from foldbatch.errors import BlockTypeError
from foldbatch.types import ObjectType


class Map(Block):
    """Applies a block to every element of a sequence.

    The input is an object that can be iterated over, a sequence, a tuple of values of one type,
    or a broadcast; the result is a sequence (of a broadcast, a broadcast), or an object where the
    block yields objects.

    Raises:
        BlockTypeError: when the input is no sequence, or a tuple of several types.

    >>> from foldbatch.blocks.leaves import Scalar
    >>> Map(Scalar()).eval([1, 2])
    [array(1., dtype=float32), array(2., dtype=float32)]
    """

    def __init__(self, block: Any) -> None:
        self.block = as_block(block, "Map")

    def build(self, builder: Builder, value: Value) -> Value:
        match value:
            case Broadcast(element):
                with builder.at(".map"):
                    return Broadcast(build(self.block, builder, element))
            case tuple():
                value = self._listed(builder, value)
            case Object() | Sequence():
                pass
            case _:
                fix = "map over a list, a sequence or a tuple"
                raise BlockTypeError(builder.where(self), "a sequence", str(type_of(value)), fix)
        return self._loop(builder, value)

    def _loop(self, builder: Builder, value: Object | Sequence) -> Value:
        result, index, element = builder.fresh("list"), builder.fresh("i"), builder.fresh("item")
        subject = value if isinstance(value, Object) else None
        builder.line(f"{result} = []")
        header = f"for {index}, {element} in enumerate({value.code}):"
        with builder.at(".map"), builder.indented(header, subject, "a sequence"):
            if isinstance(value, Object):
                item: Value = Object(element, (*value.place, f"[{{{index}}}]"))
            else:
                item = builder.element(value, element)
            outcome = build(self.block, builder, item)
            slots = builder.finish(outcome)
            codes = [slot.code for slot in slots]
            builder.line(f"{result}.append({codes[0] if len(codes) == 1 else '(' + ', '.join(codes) + ')'})")
        if isinstance(outcome, Object):
            return Object(result, value.place if isinstance(value, Object) else ())
        type_ = type_of(outcome)
        wires = tuple(new_wires(t) for t in run_time_terminals(type_))
        for slot, wire in zip(slots, wires, strict=True):
            feed(slot.wires, wire)
        return Sequence(result, type_, wires)

    def _listed(self, builder: Builder, value: tuple[Value, ...]) -> Object | Sequence:
        types = {type_of(item) for item in value}
        if len(types) != 1:
            fix = "use Record to treat the items differently"
            raise BlockTypeError(
                builder.where(self), "one or more values of one type", str(type_of(value)), fix
            )
        (type_,) = types
        slots = builder.flatten(value)
        width = len(run_time_terminals(type_))
        codes = [slot.code for slot in slots]
        if width != 1:
            codes = [f"({', '.join(codes[i * width : (i + 1) * width])})" for i in range(len(value))]
        name = builder.fresh("list")
        builder.line(f"{name} = [{', '.join(codes)}]")
        if isinstance(type_, ObjectType):
            return Object(name)
        wires = tuple(new_wires(t) for t in run_time_terminals(type_))
        for i, slot in enumerate(slots):
            feed(slot.wires, wires[i % width])
        return Sequence(name, type_, wires)

    def arguments(self) -> str:
        return repr(self.block)
