"""Reading a type directly from the example, or from what is given."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import foldbatch as fb
from foldbatch.static import ops
from foldbatch.static.graph import Node
from foldbatch.types import ObjectType, SequenceType, TensorType, TupleType, Type, VoidType
from tests.programs.expressions import FromBool
from tests.programs.maker import Maker
from tests.programs.recipes import (
    FLAG,
    FLOAT,
    ID,
    Given,
    Recipe,
    Source,
    a_number,
    has_zero,
    is_vector,
    nothing,
    whole,
)


def directly(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    if type_ in given and maker.number(2) == 0:
        return Recipe(fb.GetItem(1 + given.index(type_)), nothing)
    match type_:
        case TensorType():
            return _leaf(maker, type_, depth, given)
        case TupleType():
            return _record(maker, type_, depth, given)
        case SequenceType():
            return maker.listed(maker.read(type_.element, depth, given), given)
        case VoidType():
            return Recipe(fb.Void(), nothing)
        case ObjectType():
            return Recipe(whole(given), a_number(5))
    raise AssertionError(type_)


def wrapped(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """Read the value inside something that a function opens."""
    inner = maker.read(type_, depth, given)
    opened = fb.InputTransform(_opened)
    if given:
        opened = fb.AllOf(fb.GetItem(0) >> opened, *map(fb.GetItem, range(1, len(given) + 1)))
    return Recipe(
        opened >> inner.block >> fb.Identity(), lambda source, depth: {"closed": inner.data(source, depth)}
    )


def _opened(x: Any) -> Any:
    return x["closed"]


def optionally(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """Read a type, or find None."""
    if not has_zero(type_):
        return wrapped(maker, type_, depth, given)
    inner = maker.read(type_, depth)
    none = maker.constant(type_) if maker.number(2) else None

    def data(source: Source, depth: int) -> Any:
        return inner.data(source, depth) if source.number(3) else None

    return Recipe(whole(given) >> fb.Optional(inner.block, none), data)


def _leaf(maker: Maker, type_: TensorType, depth: int, given: Given) -> Recipe:
    if type_ == ID:
        return _id(maker, depth, given)
    if type_ == FLAG:
        less = fb.Function(less_than_2)
        read = Recipe(whole(given) >> fb.Scalar("bool"), lambda source, depth: bool(source.number(2)))
        return _id(maker, depth, given).then(less) if maker.number(3) == 2 else read
    shape = type_.shape
    match maker.number(8 if is_vector(type_) else 6 if not shape else 4):
        case 1:
            return Recipe(fb.FromTensor(np.full(shape, 0.25, FLOAT)), nothing)
        case 2:
            return Recipe(maker.constant(type_), nothing)
        case 3:
            return maker.read(FLAG, depth, given).then(fb.Function(FromBool(shape)))
        case 4 | 5 if not shape:
            return _length(maker, type_, depth, given)
        case 4 | 5:
            return maker.read(ID, depth, given).then(maker.layer("embedding", *shape))
        case 6 | 7:
            return _one_hot(maker, shape[0], given)
    return Recipe(whole(given) >> fb.Tensor(shape, FLOAT), lambda source, depth: source.floats(shape))


def less_than_2(i: Node) -> Node:
    return ops.less(i, 2)


def two_minus(i: Node) -> Node:
    return 2 - i


def _id(maker: Maker, depth: int, given: Given) -> Recipe:
    """A number from 0 to 2, read or computed."""
    match maker.number(5):
        case 1:
            return Recipe(fb.FromTensor(np.int32(maker.number(3))), nothing)
        case 2:
            return maker.read(ID, depth - 1, given).then(fb.Function(two_minus))
        case 3:
            long = Recipe(whole(given) >> fb.Scalar("int64"), a_number(3))
            return long.then(fb.Function(partial(ops.cast, dtype="int32")))
        case 4:
            return Recipe(whole(given) >> fb.Length("int32"), lambda source, depth: "abc"[: source.number(3)])
    return Recipe(whole(given) >> fb.Scalar(maker.one_of(["int32", "int32", "uint8"])), a_number(3))


def _length(maker: Maker, type_: TensorType, depth: int, given: Given) -> Recipe:
    """How many there are of something."""
    length = fb.Length(type_.dtype)
    if maker.number(3) == 0:
        return Recipe(whole(given) >> length, lambda source, depth: {i: i for i in range(source.number(4))})
    counted = maker.one_of([SequenceType(maker.floats()), TupleType((type_, ID)), SequenceType(ID)])
    return maker.read(counted, depth, given).then(length)


def _one_hot(maker: Maker, size: int, given: Given) -> Recipe:
    """One of as many as a vector has elements, or an unknown one."""
    match maker.number(3):
        case 0:
            first = maker.number(3)
            block = fb.OneHot(first, first + size, FLOAT) if first else fb.OneHot(size, dtype=FLOAT)
            return Recipe(whole(given) >> block, lambda source, depth: first + source.number(size))
        case 1:
            known: Sequence[Any] = [None, ("a", 1), "b"][:size]
            strict = fb.OneHotFromList(known, FLOAT)
            return Recipe(whole(given) >> strict, lambda source, depth: known[source.number(size)])
    loose = fb.OneHotFromList(range(size), FLOAT, strict=False)
    return Recipe(
        whole(given) >> loose, lambda source, depth: [*range(size), [], "x", -1][source.number(size + 3)]
    )


def _record(maker: Maker, type_: TupleType, depth: int, given: Given) -> Recipe:
    parts = [maker.read(item, depth, given) for item in type_.items]
    way = maker.number(4)
    if parts and (given or way == 0):
        return maker.both(parts, given)
    keys = ["a", "b", ("c", 1), None, "{e}", "f"][: len(parts)] if way < 3 else list(range(len(parts)))
    pairs = [(key, part.block) for key, part in zip(keys, parts, strict=True)]
    named: Any = dict(pairs) if way == 1 else pairs
    block = whole(given) >> fb.Record(named if way in (1, 2) and parts else tuple(b for _, b in pairs))

    def data(source: Source, depth: int) -> Any:
        items = [part.data(source, depth) for part in parts]
        return dict(zip(keys, items, strict=True)) if way < 3 and parts else items

    return Recipe(block, data)
