"""Blocks that make sequences of sequences, element by element."""

from __future__ import annotations

from itertools import chain
from typing import Any, Never, overload

from foldbatch.blocks.block import Block, BlockLike, Out_co, as_block
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.building import build
from foldbatch.blocks.drafts import (
    Object,
    Repeated,
    Sequence,
    Value,
    as_object,
    is_int,
    run_time_terminals,
    type_of,
)
from foldbatch.blocks.flow import append, expect_list, loop_over
from foldbatch.blocks.leaves import as_tensor_type
from foldbatch.blocks.tracing import Apply, Constant, Count, Cut, Expression, Listed, Spread, Tuple, ZipLists
from foldbatch.errors import BlockTypeError, BlockValueError
from foldbatch.model.columns import items_once
from foldbatch.static.graph import Node, constant
from foldbatch.types import (
    DEFAULT_DTYPE,
    OBJECT,
    BroadcastType,
    ObjectType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    describe_value,
)

MAX_NGRAM = 1000  # n-grams


class Map(Block[ObjectType | TupleType | SequenceType | BroadcastType, Out_co]):
    """Applies a block to every element of a sequence.

    The input is an object that can be iterated over, a sequence, a tuple of values of one type,
    or a broadcast; the result is a sequence (of a broadcast, a broadcast), or an object where the
    block yields objects.

    Raises:
        BlockTypeError: when the input is no sequence, or a tuple of several types.

    >>> fb.Map(fb.Scalar()).eval([1, 2])
    [array(1., dtype=float32), array(2., dtype=float32)]
    """

    @overload
    def __init__(self: Map[Any], block: Block[Any, Never]) -> None: ...  # of a block that may yield anything
    @overload
    def __init__(self: Map[ObjectType], block: Block[Any, ObjectType]) -> None: ...
    @overload
    def __init__(self: Map[SequenceType], block: Block[Any, Any] | BlockLike) -> None: ...
    def __init__(self, block: object) -> None:
        self.block = as_block(block, "Map")

    @property
    def input_type(self) -> Type | None:
        return OBJECT if self.block.input_type == OBJECT else None

    def build(self, builder: Builder, value: Value) -> Value:
        """Build a loop that appends the block's result for each element; return the list."""
        if isinstance(value, Repeated):
            with builder.at(".map"):
                return Repeated(build(self.block, builder, value.value))
        source = expect_list(self, builder, value)
        result = builder.fresh("list")
        builder.assign(result, Listed(()))
        with loop_over(builder, source, ".map") as element:
            mapped = append(builder, build(self.block, builder, element), result)
        if isinstance(mapped, Object) and isinstance(source, Object):
            return Object(result, source.place)
        return mapped


class Broadcast(Block[Any, BroadcastType]):
    """Repeats its input without end, for `Zip` to cut to the length of another sequence.

    >>> next(Broadcast().eval("x"))
    'x'
    """

    def build(self, builder: Builder, value: Value) -> Value:
        return Repeated(value)


class Zip(Block[TupleType | ObjectType, Any]):
    """Makes one sequence of tuples of several sequences, as long as the shortest.

    The input is a tuple of sequences, broadcasts, or objects that can be iterated over. The result is
    a sequence; of broadcasts alone a broadcast, of objects alone an object.

    Raises:
        BlockTypeError: when the input is no tuple, is empty, or a member is no sequence.

    >>> (fb.AllOf(fb.Map(fb.Scalar()), fb.Map(fb.Scalar("int32"))) >> fb.Zip()).eval([1])
    [(array(1., dtype=float32), array(1, dtype=int32))]
    """

    def build(self, builder: Builder, value: Value) -> Value:
        """Return the members side by side: one list of tuples; broadcasts alone stay a broadcast."""
        sequences = as_object(value)
        if isinstance(sequences, Object):
            return builder.apply(ZIPPED, sequences, expected="several sequences")
        where, fix = builder.where(self), "give it a tuple of sequences, as AllOf or Record make"
        if not isinstance(value, tuple) or not value:
            raise BlockTypeError(where, "a tuple of sequences", str(type_of(value)), fix)
        for number, member in enumerate(value):
            if not isinstance(member, Object | Sequence | Repeated):
                actual = f"{type_of(member)} as member {number}"
                raise BlockTypeError(where, "a tuple of sequences", actual, fix)
        if all(isinstance(member, Repeated) for member in value):
            return Repeated(tuple(member.value for member in value if isinstance(member, Repeated)))
        return self._zipped(builder, value)

    def _zipped(self, builder: Builder, members: tuple[Value, ...]) -> Sequence:
        """Return the list of tuples of members' elements, cut to the shortest member."""
        names: list[str] = []
        sources: list[Expression] = []
        items: list[Expression] = []
        elements: list[Type] = []
        wires: list[Any] = []
        for member in members:
            match member:
                case Repeated(repeated):
                    slots = builder.flatten(repeated)
                    items += [slot.expression for slot in slots]
                    wires += [slot.wires for slot in slots]
                    elements.append(type_of(repeated))
                case Object() | Sequence():
                    names.append(builder.fresh("item"))
                    sources.append(member.expression)
                    single = isinstance(member, Object) or len(run_time_terminals(member.element)) == 1
                    items.append(names[-1] if single else Spread(names[-1]))
                    wires += (None,) if isinstance(member, Object) else member.wires
                    elements.append(OBJECT if isinstance(member, Object) else member.element)
        subject = next((member for member in members if isinstance(member, Object)), None)
        name = builder.fresh("list")
        blame = builder.blame(subject, "a sequence")
        builder.add(ZipLists(blame, name, tuple(names), tuple(sources), _flat(items)))
        return Sequence(name, TupleType(tuple(elements)), tuple(wires))


def _flat(items: list[Expression]) -> Expression:
    return items[0] if len(items) == 1 and not isinstance(items[0], Spread) else Tuple(tuple(items))


class ZipWith(Block[TupleType | ObjectType, Any]):
    """Applies a block to the tuples that `Zip` makes: ``Zip() >> Map(block)``.

    >>> numbers, product = fb.Map(fb.Scalar()), fb.Function(lambda a, b: a * b)
    >>> both = fb.Record((numbers, numbers)) >> fb.ZipWith(product)
    >>> [float(x) for x in both.eval(([1, 2, 3], [4, 5]))]
    [4.0, 10.0]
    """

    def __init__(self, block: object) -> None:
        self.block = as_block(block, "ZipWith")

    def build(self, builder: Builder, value: Value) -> Value:
        pairs = build(Zip(), builder, value)
        return build(Map(self.block), builder, pairs)


class NGrams(Block[ObjectType | TupleType | SequenceType, Any]):
    """Makes the sequence of all `n` neighbours, in tuples; there is none where there are fewer.

    Of a broadcast it makes a broadcast.

    Raises:
        BlockValueError: when `n` is not from 1 to 1,000.
        BlockTypeError: when the input is no finite sequence.

    >>> NGrams(2).eval("abc")
    [('a', 'b'), ('b', 'c')]
    """

    def __init__(self, n: int) -> None:
        if not is_int(n):
            raise BlockTypeError("NGrams", "an int as n", describe_value(n), "for example NGrams(2)")
        if not 1 <= n <= MAX_NGRAM:  # else a file from elsewhere could ask for endless work
            raise BlockValueError("NGrams", f"1 to {MAX_NGRAM:,} as n", str(n), "for example NGrams(2)")
        self.n = n

    def build(self, builder: Builder, value: Value) -> Value:
        """Return the list of each element with its followers; of a broadcast, a tuple of its value."""
        if isinstance(value, Repeated):
            return Repeated((value.value,) * self.n)
        source = expect_list(self, builder, value)
        name, items = builder.fresh("list"), builder.fresh("items")
        subject = source if isinstance(source, Object) else None
        blame = builder.blame(subject, "a sequence")
        builder.add(Apply(blame, items, LISTED, (source.expression,)))
        shifted = [
            Cut(items, builder.constant("from", slice(k, None))) if k else items for k in range(self.n)
        ]
        parts = [builder.fresh("item") for _ in range(self.n)]
        element: Expression = Tuple(tuple(parts))
        if isinstance(source, Sequence):
            single = len(run_time_terminals(source.element)) == 1
            element = _flat([*parts] if single else [Spread(part) for part in parts])
        builder.add(ZipLists(builder.blame(), name, tuple(parts), tuple(shifted), element))
        if isinstance(source, Object):
            return Object(name, source.place)
        result = TupleType((source.element,) * self.n)
        return Sequence(name, result, tuple(chain.from_iterable([source.wires] * self.n)))


class Length(Block[ObjectType | TupleType | SequenceType, TensorType]):
    """Counts the items of an object, a finite sequence or a tuple.

    Args:
        dtype: of the scalar that it yields.

    Raises:
        BlockTypeError: when the input has no length.

    >>> Length("int32").eval("abc")
    array(3, dtype=int32)
    """

    def __init__(self, dtype: str = DEFAULT_DTYPE) -> None:
        self.type = as_tensor_type("Length", (), dtype)
        self.dtype = self.type.dtype

    def build(self, builder: Builder, value: Value) -> Node:
        """Return the number of items: a constant of a tuple, else read from the list."""
        match value:
            case tuple():
                return constant(len(value), self.type.dtype)
            case Object():
                count = builder.apply(Constant("len", len), value, expected="something with a length")
            case Sequence():
                count = Object(Count(value.expression))
            case _:
                fix = "give it a list, a sequence or a tuple"
                raise BlockTypeError(builder.where(self), "something with a length", str(type_of(value)), fix)
        return builder.read(count, self.type, builder.where(self))


def _zipped(sequences: Any) -> list[tuple[Any, ...]]:
    return list(zip(*map(items_once, sequences), strict=False))


def _listed(data: object) -> list[Any]:
    return list(items_once(data))


ZIPPED, LISTED = Constant("zipped", _zipped), Constant("list", _listed)
