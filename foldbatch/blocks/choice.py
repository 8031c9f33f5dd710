"""Choosing a block by what the example holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from foldbatch.blocks.block import AnyBlock, Block, as_block, build, check, function_name, keyed
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.constants import zeros
from foldbatch.blocks.flow import Variables, apart, assign, declare, pass_on, read
from foldbatch.blocks.leaves import expect_object
from foldbatch.blocks.printing import levels_of
from foldbatch.blocks.settings import settings_of
from foldbatch.blocks.tracing import Apply, Body, Branch, Case, Present
from foldbatch.blocks.values import Object, Value, as_object, type_of
from foldbatch.errors import BlockTypeError, BlockValueError
from foldbatch.model.columns import refuse
from foldbatch.types import OBJECT, VOID, ObjectType, TupleType, Type, describe_value

SHOWN = 12  # keys named in an error


class OneOf(Block[Any, Any]):
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
        key_fn: Callable[[Any], Any] | AnyBlock,
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

        check(self)

    def settings(self) -> dict[str, Any]:
        cases = tuple(block for _, block in self.cases) if self.listed else self.cases
        return {**settings_of(self), "cases": cases}

    @property
    def input_type(self) -> Type | None:
        return self.key_fn.input_type if isinstance(self.key_fn, Block) else OBJECT

    def build(self, builder: Builder, value: Value) -> Value:
        if builder.deep:
            return apart(builder, self, value)
        origin = value.place if isinstance(value, Object) else ()
        key = self._key(builder, value)
        if self.pre_block is not None:
            with builder.at(".pre_block"):
                value = build(self.pre_block, builder, value)
        given = pass_on(builder, value)
        index = {key: number for number, (key, _) in enumerate(self.cases)}
        if self.listed:
            index |= {key - len(self.cases): key for key in list(index)}
        keys = [key.__name__ if isinstance(key, type) else repr(key) for key, _ in self.cases[:SHOWN]]
        shown = keys + ["..."] * (len(self.cases) > SHOWN)
        expected = f"a key of {', '.join(shown)}"
        chosen = builder.fresh("case")
        blame, table = builder.blame(key, expected), builder.constant("index", index)
        miss = Apply(
            builder.blame(key), None, builder.constant("refuse", _refusal(expected)), (key.expression,)
        )
        result: Variables | None = None
        builder.enter()
        bodies: list[Body] = []
        for (case, block), levels in zip(self.cases, levels_of(len(self.cases) + 1), strict=False):
            with builder.at(f".case({case!r})"), builder.inside(1 + levels) as body:
                outcome = build(block, builder, read(builder, given))
                result = result or declare(builder, type_of(outcome), origin)
                wanted = f"{result.type}, as case {self.cases[0][0]!r} yields"
                assign(builder, result, outcome, "make all cases yield one type", wanted)
            bodies.append(tuple(body))
        builder.add(Branch(blame, Case(chosen, table, key.expression), (*bodies, (miss,))))
        assert result is not None
        return read(builder, result)

    def _key(self, builder: Builder, value: Value) -> Object:
        if isinstance(self.key_fn, Block):
            with builder.at(".key"):
                key = as_object(build(self.key_fn, builder, value))
            if not isinstance(key, Object):
                fix = "choose by the example's data; on tensors, use ops.where"
                raise BlockTypeError(
                    f"{builder.path}.key", "a block that yields an object", str(type_of(key)), fix
                )
            return key
        value = as_object(value)
        if not isinstance(value, Object):
            fix = "as key_fn give a block that finds an object; to choose on tensors, use ops.where"
            raise BlockTypeError(builder.where(self), "a Python object", str(type_of(value)), fix)
        function = builder.constant("key_fn", self.key_fn)
        return builder.apply(function, value, where=f"{builder.path} OneOf", calls="key_fn")

    def arguments(self) -> str:
        key = repr(self.key_fn) if isinstance(self.key_fn, Block) else function_name(self.key_fn)
        if self.listed:
            cases = f"[{', '.join(repr(block) for _, block in self.cases)}]"
        else:
            cases = f"{{{', '.join(f'{key!r}: {block!r}' for key, block in self.cases)}}}"
        return f"{key}, {cases}" + (f", pre_block={self.pre_block!r}" if self.pre_block else "")


class Optional(Block[ObjectType | TupleType, Any]):
    """Applies a block unless the input is None, or, of a tuple, an object in it is None.

    Args:
        some: the block for what is not None.
        none: what stands for None, a block that reads nothing, or a tuple of such; by default zeros of
            `some`'s type.

    A key that may be absent is read with `GetItem(key, default=None)`. In a tuple, as of a tensor and a
    label, the block is given all of it, or else nothing of it.

    Raises:
        BlockTypeError: when the input is no object and no tuple with one, the blocks yield different
            types, or there is no zero of `some`'s type.

    >>> from foldbatch.blocks.constants import FromTensor
    >>> from foldbatch.blocks.items import GetItem
    >>> from foldbatch.blocks.leaves import Scalar
    >>> [float(Optional(Scalar()).eval(x)) for x in (3, None)]
    [3.0, 0.0]
    >>> weight = GetItem("weight", default=None) >> Optional(Scalar(), FromTensor(1.0))
    >>> [float(weight.eval(x)) for x in ({"weight": 5}, {"weight": None}, {})]
    [5.0, 1.0, 1.0]
    """

    def __init__(self, some: Any, none: Any = None) -> None:
        self.some = as_block(some, "Optional.some")
        self.none = None if none is None else as_block(none, "Optional.none")
        check(self)

    @property
    def input_type(self) -> Type | None:
        reads_object = self.some.passes_on or self.some.input_type in (OBJECT, VOID)
        return OBJECT if reads_object else None

    def build(self, builder: Builder, value: Value) -> Value:
        items = map(as_object, value) if isinstance(value, tuple) else [expect_object(self, builder, value)]
        objects = [item for item in items if isinstance(item, Object)]
        if not objects:
            fix = "give it the object that may be None"
            raise BlockTypeError(builder.where(self), "an object in the tuple", str(type_of(value)), fix)
        if builder.deep:
            return apart(builder, self, value)
        given = pass_on(builder, value)
        blame = builder.blame()
        with builder.at(".some"), builder.inside() as some:
            outcome = build(self.some, builder, read(builder, given))
            result = declare(builder, type_of(outcome), objects[0].place)
            assign(builder, result, outcome, "")
        with builder.at(".none"), builder.inside() as none:
            empty = zeros(result.type, builder.path) if self.none is None else build(self.none, builder, None)
            fix, expected = "make both yield one type", f"{result.type}, as the other block yields"
            assign(builder, result, empty, fix, expected)
        present = Present(tuple(item.expression for item in objects))
        builder.add(Branch(blame, present, (tuple(some), tuple(none))))
        return read(builder, result)

    def arguments(self) -> str:
        return repr(self.some) + (f", {self.none!r}" if self.none else "")


def _refusal(expected: str) -> Callable[[Any], None]:
    def raise_it(key: Any) -> None:
        refuse(expected, key, "add a case for it")

    return raise_it
