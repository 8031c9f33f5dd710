"""Computing a type from other ones: with functions and layers, in parts, or a second time."""

from collections.abc import Callable

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

Child = Callable[[], Recipe]


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
    """Compute the type with a function."""
    operands = maker.operands(depth)
    recipe = maker.read(operands, depth, given)
    if isinstance(type_, TupleType) and maker.number(2):  # one value, several readers
        return recipe.then(fb.AllOf(*(maker.function(operands, item) for item in type_.items)))
    return recipe.then(maker.function(operands, type_))


def layered(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """Compute a tensor of one axis or more with a layer."""
    assert isinstance(type_, TensorType)
    ways = [_linear, _normal, _dropped] if maker.dropout else [_linear, _normal]
    if is_vector(type_):
        ways += [_attended, _attended]
    if type_ == TRIPLE:
        ways.append(_joined)
    recipe: Recipe = maker.one_of(ways)(maker, type_, depth, given)
    return recipe


def _linear(maker: Maker, type_: TensorType, depth: int, given: Given) -> Recipe:
    source = maker.one_of([TensorType((*type_.shape[:-1], n), type_.dtype) for n in (2, 3)])
    layer = maker.layer("linear", source.shape[-1], type_.shape[-1])
    return maker.read(source, depth, given).then(layer)


def _normal(maker: Maker, type_: TensorType, depth: int, given: Given) -> Recipe:
    return maker.read(type_, depth, given).then(maker.layer("layer norm", type_.shape[-1]))


def _dropped(maker: Maker, type_: TensorType, depth: int, given: Given) -> Recipe:
    return maker.read(type_, depth, given).then(fb.Dropout(0.5))


def _joined(maker: Maker, type_: TensorType, depth: int, given: Given) -> Recipe:
    flatten = maker.number(2) == 1
    parts = TupleType((SCALAR, TupleType((PAIR,)) if flatten else PAIR))
    return maker.read(parts, depth, given).then(fb.Concat(flatten=flatten))


def _attended(maker: Maker, type_: TensorType, depth: int, given: Given) -> Recipe:
    """Attend to a sequence or to a tuple."""
    dot = maker.number(2) == 1
    query = type_ if dot else maker.one_of([PAIR, TRIPLE])
    items = SequenceType(type_) if maker.number(3) else TupleType((type_,) * (1 + maker.number(3)))
    if dot:
        layer = fb.blocks.Attention(maker.one_of([None, type_.shape[0]]), "dot")
    else:
        layer = maker.layer("attention", *query.shape, *type_.shape)
    return maker.read(TupleType((query, items)), depth, given).then(layer)


def cell(maker: Maker, type_: Type, depth: int, given: Given, me: Declared | None = None) -> Recipe:
    """A tree cell, whose children are `me` in a recursion; or a recurrent one."""

    made: list[Recipe] = []

    def child() -> Recipe:  # the first is `me`, that the recursion be one
        made.append(me.call if me and (not made or maker.number(4)) else maker.read(type_, depth, given))
        return made[-1]

    ways = [_with_places, _child_sum, _step] + ([_tensor_network] if type_ == PAIR else [])
    recipe: Recipe = maker.one_of(ways)(maker, type_, depth, given, child)
    return recipe


def _input(maker: Maker, depth: int, given: Given) -> Recipe:
    return maker.read(maker.one_of([TRIPLE, VOID]), depth, given)


def _with_places(maker: Maker, type_: Type, depth: int, given: Given, child: Child) -> Recipe:
    kids = [child() for _ in range(1 + maker.number(4))]
    if maker.number(3) == 2:
        kids.insert(0, Recipe(fb.Void(), nothing))
    layer = maker.layer("tree lstm" if type_ == STATE else "tree rnn", 3, max(2, len(kids)) + maker.number(2))
    return maker.both([_input(maker, depth, given), maker.both(kids, given)], given).then(layer)


def _child_sum(maker: Maker, type_: Type, depth: int, given: Given, child: Child) -> Recipe:
    x = maker.read(TRIPLE, depth, given)  # without x, a cell needs children
    layer = maker.layer("child sum" if type_ == STATE else "tree gru")
    return maker.both([x, maker.listed(child(), given)], given).then(layer)


def _step(maker: Maker, type_: Type, depth: int, given: Given, child: Child) -> Recipe:
    step = maker.both([_input(maker, depth, given), child()], given)
    return step.then(maker.layer("lstm" if type_ == STATE else "gru"), fb.GetItem(1))


def _tensor_network(maker: Maker, type_: Type, depth: int, given: Given, child: Child) -> Recipe:
    kids = [child(), child() if maker.number(3) else Recipe(fb.Void(), nothing)]
    both = maker.both(kids[:: maker.one_of([1, -1])], given)
    return maker.both([_input(maker, depth, given), both], given).then(maker.layer("rntn"))


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
