"""Choosing a block by what the example holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from foldbatch.blocks.block import Block, as_block, build, function_name, keyed
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.tracer import refuse
from foldbatch.blocks.values import Object, Slot, Value, feed, new_wires, run_time_terminals, type_of
from foldbatch.errors import BlockTypeError, BlockValueError
from foldbatch.types import describe_value

SHOWN = 12  # keys named in an error


class OneOf(Block):
    """Applies the block of the case that a key names.

    Args:
        key_fn: a Python function of the input object, or a block that yields an object.
        cases: a dict or pairs from key to block, or a tuple or list of blocks whose keys are
            0, 1, ... (negative keys count from the end).
        pre_block: applied to the input before it goes to the case; the key sees the original.

    All cases must yield the same type.

    Raises:
        BlockValueError: when there are no cases, or two of one key.
        BlockTypeError: when `key_fn` is not callable, or the cases yield different types.
        ExampleKeyError: when tracing, where there is no case for the key.

    >>> from foldbatch.blocks.function import Function
    >>> from foldbatch.blocks.leaves import Scalar
    >>> sign = OneOf(lambda x: x < 0, {True: Scalar() >> Function(lambda x: -x), False: Scalar()})
    >>> sign.eval(-3)
    array(3., dtype=float32)
    """

    def __init__(
        self,
        key_fn: Callable[[Any], Any] | Block,
        cases: Mapping[Any, Any] | Iterable[Any],
        pre_block: Any = None,
    ) -> None:
        if not callable(key_fn) and not isinstance(key_fn, Block):
            fix = "for example lambda x: x['kind'], or GetItem('kind')"
            raise BlockTypeError("OneOf", "a function or a block as key_fn", describe_value(key_fn), fix)
        pairs, given = keyed(cases, "OneOf.case")
        if not pairs:
            raise BlockValueError("OneOf", "at least one case", "none", "give a dict from key to block")
        self.key_fn = key_fn
        self.cases = tuple(pairs)
        self.listed = not given
        self.pre_block = None if pre_block is None else as_block(pre_block, "OneOf.pre_block")

    def build(self, builder: Builder, value: Value) -> Value:
        origin = value.place if isinstance(value, Object) else ()
        key = self._key(builder, value)
        if self.pre_block is not None:
            with builder.at(".pre_block"):
                value = build(self.pre_block, builder, value)
        outer = builder.flatten(value)
        index = {key: number for number, (key, _) in enumerate(self.cases)}
        if self.listed:
            index |= {key - len(self.cases): key for key in list(index)}
        shown = [repr(key) for key, _ in self.cases[:SHOWN]] + ["..."] * (len(self.cases) > SHOWN)
        expected = f"a key of {', '.join(shown)}"
        chosen = builder.fresh("case")
        table = builder.constant("index", index)
        builder.line(f"{chosen} = {table}.get({key.code}, -1)", key, expected)
        names: list[str] | None = None
        for number, (case, block) in enumerate(self.cases):
            header = f"{'elif' if number else 'if'} {chosen} == {number}:"
            with builder.at(f".case({case!r})"), builder.indented(header):
                outcome = build(block, builder, builder.unflatten(type_of(value), iter(outer)))
                slots = builder.finish(outcome)
                if names is None:
                    type_, first = type_of(outcome), case
                    names = [builder.fresh() for _ in slots]
                    wires = [new_wires(t) for t in run_time_terminals(type_)]
                elif type_of(outcome) != type_:
                    wanted, fix = f"{type_}, as case {first!r} yields", "make all cases yield one type"
                    raise BlockTypeError(builder.path, wanted, str(type_of(outcome)), fix)
                for name, slot, wire in zip(names, slots, wires, strict=True):
                    builder.line(f"{name} = {slot.code}")
                    feed(slot.wires, wire)
        builder.line("else:")
        miss = builder.constant("refuse", _refusal(expected))
        builder.line(f"    {miss}({key.code})", key)
        assert names is not None
        terminals = run_time_terminals(type_)
        merged = [Slot(n, t, w, origin) for n, t, w in zip(names, terminals, wires, strict=True)]
        return builder.unflatten(type_, iter(merged))

    def _key(self, builder: Builder, value: Value) -> Object:
        if isinstance(self.key_fn, Block):
            with builder.at(".key"):
                key = build(self.key_fn, builder, value)
            if not isinstance(key, Object):
                fix = "choose by the example's data; on tensors, use ops.where"
                raise BlockTypeError(
                    f"{builder.path}.key", "a block that yields an object", str(type_of(key)), fix
                )
            return key
        if not isinstance(value, Object):
            fix = "as key_fn give a block that finds an object; to choose on tensors, use ops.where"
            raise BlockTypeError(f"{builder.path} OneOf", "a Python object", str(type_of(value)), fix)
        name = builder.constant("key_fn", self.key_fn)
        where = f"{builder.path} OneOf"
        return builder.assign(f"{name}({value.code})", value.place, value, where=where, calls="key_fn")

    def arguments(self) -> str:
        key = repr(self.key_fn) if isinstance(self.key_fn, Block) else function_name(self.key_fn)
        cases = ", ".join(f"{key!r}: {block!r}" for key, block in self.cases)
        return f"{key}, {{{cases}}}"


def _refusal(expected: str) -> Callable[[Any], None]:
    def raise_it(key: Any) -> None:
        refuse(expected, key, "add a case for it")

    return raise_it
