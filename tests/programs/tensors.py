"""Computing a type from other ones: with functions and layers, in parts, or a second time."""

from __future__ import annotations

import foldbatch as fb
from foldbatch.types import VOID, SequenceType, TensorType, TupleType, Type
from tests.programs.leaves import directly
from tests.programs.maker import Maker
from tests.programs.recipes import (
    FLAG,
    ID,
    PAIR,
    SCALAR,
    STATE,
    TENSORS,
    TRIPLE,
    Declared,
    Given,
    Recipe,
    is_of_floats,
    is_vector,
    narrow,
    nothing,
    whole,
)


def again(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """The very block used elsewhere, or one block twice on the same data."""
    recipe: Recipe = maker.one_of([r for t, g, r in maker.made if (t, g) == (type_, given)])
    if maker.number(2):
        return recipe
    return Recipe(fb.AllOf(recipe.block, recipe.block) >> fb.GetItem(1), recipe.data)


def let(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """Read something here, to be used in another block's regions."""
    kept = given[-1:]
    bound = maker.one_of((*TENSORS, ID, FLAG, STATE, SequenceType(PAIR)))
    head, body = maker.read(bound, depth, given), maker.read(type_, depth, (*kept, bound))
    passed = [
        narrow(0, given) >> whole(given),
        *(fb.GetItem(len(given)) for _ in kept),
        narrow(1, given) >> head.block,
    ]
    return Recipe(
        fb.AllOf(*passed) >> body.block,
        lambda source, depth: [body.data(source, depth), head.data(source, depth)],
    )


def derived(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """Compute the type with a function or a layer."""
    if type_ == STATE and maker.number(3):
        return cell(maker, type_, depth, given)
    if isinstance(type_, TensorType) and type_.shape and maker.number(2):
        return _layered(maker, type_, depth, given)
    operands = maker.operands(depth)
    recipe = maker.read(operands, depth, given)
    if isinstance(type_, TupleType) and maker.number(2):  # one value, several readers
        return recipe.then(fb.AllOf(*(maker.function(operands, item) for item in type_.items)))
    return recipe.then(maker.function(operands, type_))


def _layered(maker: Maker, type_: TensorType, depth: int, given: Given) -> Recipe:
    way = maker.number(6 if type_ == TRIPLE else 5)
    if way == 1 and is_vector(type_):
        return _attended(maker, type_, depth, given)
    if way == 2 and type_ == PAIR:
        return cell(maker, type_, depth, given)
    if way == 3:
        return maker.read(type_, depth, given).then(maker.layer("layer norm", *type_.shape))
    if way == 4 and maker.dropout:
        return maker.read(type_, depth, given).then(fb.Dropout(0.5))
    if way == 5:
        flatten = maker.number(2) == 1
        parts = TupleType((SCALAR, TupleType((PAIR,)) if flatten else PAIR))
        return maker.read(parts, depth, given).then(fb.Concat(flatten=flatten))
    source = maker.one_of([TensorType((*type_.shape[:-1], n), type_.dtype) for n in (2, 3)])
    kind = maker.layer("linear", source.shape[-1], type_.shape[-1])
    return maker.read(source, depth, given).then(kind)


def _attended(maker: Maker, type_: TensorType, depth: int, given: Given) -> Recipe:
    """Attend to a sequence or to a tuple."""
    dot = maker.number(2) == 1
    query = type_ if dot else maker.one_of([PAIR, TRIPLE])
    items: Type = SequenceType(type_) if maker.number(3) else TupleType((type_,) * (1 + maker.number(3)))
    if dot:
        layer = fb.Attention(maker.one_of([None, type_.shape[0]]), "dot")
    else:
        layer = maker.layer("attention", *query.shape, *type_.shape)
    return maker.read(TupleType((query, items)), depth, given).then(layer)


def cell(maker: Maker, type_: Type, depth: int, given: Given, me: Declared | None = None) -> Recipe:
    """A tree cell, whose children are `me` in a recursion; or a recurrent one."""

    def child() -> Recipe:
        return me.call if me and maker.number(4) else maker.read(type_, depth, given)

    if maker.number(5) == 4:
        x = maker.read(maker.one_of([TRIPLE, VOID]), depth, given)
        kind = "lstm" if type_ == STATE else "gru"
        step = maker.both([x, me.call if me else child()], given).then(maker.layer(kind))
        return step.then(fb.GetItem(1))
    if maker.number(2):
        x = maker.read(TRIPLE, depth, given)  # without x, a cell needs children
        many = maker.listed(child(), given) if me else maker.read(SequenceType(type_), depth, given)
        return maker.both([x, many], given).then(maker.layer("child sum" if type_ == STATE else "tree gru"))
    x = maker.read(maker.one_of([TRIPLE, VOID]), depth, given)
    kids = [me.call if me else child(), *(child() for _ in range(maker.number(3)))]
    if maker.number(3) == 2:
        kids.insert(0, Recipe(fb.Void(), nothing))
    states = maker.both(kids, given)
    if type_ == PAIR and len(kids) == 2 and maker.number(2):
        return maker.both([x, states], given).then(maker.layer("rntn"))
    arity = max(2, len(kids)) + maker.number(2)
    kind = "tree lstm" if type_ == STATE else "tree rnn"
    return maker.both([x, states], given).then(maker.layer(kind, 3, arity))


def part(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """A tuple from a larger one, or a sequence from a sequence or a tuple."""
    if isinstance(type_, TupleType):
        if maker.number(2):
            return maker.read(TupleType((type_, SCALAR)), depth, given).then(fb.GetItem(0))
        wider = TupleType((*type_.items, maker.one_of(TENSORS)))
        select = fb.Slice(stop=-1) if maker.number(2) else fb.GetItem(slice(0, len(type_.items)))
        return maker.read(wider, depth, given).then(select)
    assert isinstance(type_, SequenceType)
    if not is_of_floats(type_.element):
        return directly(maker, type_, depth, given)
    item = maker.one_of([maker.one_of(TENSORS), STATE, SequenceType(maker.one_of(TENSORS))])
    tuple_ = TupleType((item,) * (1 + maker.number(3)))
    every = maker.read(tuple_ if maker.number(2) else SequenceType(item), depth, given)
    return every.then(fb.Map(maker.function(item, type_.element)))
