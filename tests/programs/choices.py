"""Choice and recursion: declarations, alone and of each other."""

from operator import itemgetter
from typing import Any

import foldbatch as fb
from foldbatch.blocks.block import Block
from foldbatch.types import OBJECT, VOID, SequenceType, TupleType, Type
from tests.programs.maker import Maker
from tests.programs.recipes import (
    PAIR,
    STATE,
    TENSORS,
    Declared,
    Given,
    Recipe,
    Source,
    is_of_floats,
    narrow,
    whole,
)
from tests.programs.sequences import summary
from tests.programs.tensors import cell


def chosen(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """Read a type in one of several ways, as the example says."""
    cases = [maker.read(type_, depth, given) for _ in range(1 + maker.number(3))]
    way = maker.number(4)
    names: list[Any] = ["x", 7, None][: len(cases)] if way < 2 else list(range(len(cases)))
    blocks = [case.block for case in cases]
    if way % 2 and not given:
        table: Any = dict(zip(names, blocks, strict=True)) if way == 1 else tuple(blocks)
        block: Block = fb.OneOf(itemgetter("kind"), table, pre_block=fb.GetItem("x"))
    else:
        narrowed = [narrow("x", given) >> b for b in blocks]
        pairs: Any = list(zip(names, narrowed, strict=True)) if way < 2 else narrowed
        block = fb.OneOf(whole(given) >> fb.GetItem("kind"), pairs)

    def data(source: Source, depth: int) -> Any:
        which = source.number(len(cases))
        kind = names[which]
        if way >= 2 and source.number(2):
            kind -= len(cases)  # keys of listed cases may count from the end
        return {"kind": kind, "x": cases[which].data(source, depth)}

    return Recipe(block, data)


def _declare(maker: Maker, type_: Type, given: Given) -> tuple[fb.ForwardDeclaration, Declared, list[Recipe]]:
    """Return a new declaration, how to call it, and the list for what ends it and what goes on."""
    inputs = TupleType((OBJECT, *given)) if given else OBJECT
    declaration = fb.ForwardDeclaration(inputs, type_, maker.one_of(["tree", "a b", "2"]))
    parts: list[Recipe] = []

    def data(source: Source, depth: int) -> Any:
        source.left -= 1
        further = depth > 0 and source.left > 0 and source.number(4) > 0
        return {"more": further, "x": parts[further].data(source, depth - further)}

    return declaration, Declared(Recipe(declaration(), data), given, type_), parts


def _define(declaration: fb.ForwardDeclaration, given: Given, parts: list[Recipe]) -> None:
    cases = {bool(more): narrow("x", given) >> part.block for more, part in enumerate(parts)}
    declaration.resolve_to(fb.OneOf(whole(given) >> fb.GetItem("more"), cases))


def recursive(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """Declare a block, and define it by what ends and what goes on."""
    declaration, me, parts = _declare(maker, type_, given)
    parts.append(maker.read(type_, depth - 1, given))
    maker.declared.append(me)
    parts.append(_body(maker, me, depth).then(*maker.collect(type_)))
    maker.declared.remove(me)
    _define(declaration, given, parts)
    return Recipe(declaration(), me.call.data) if maker.number(2) else me.call


def mutual(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """Declare two blocks, each defined by the other."""
    if not is_of_floats(type_):
        return recursive(maker, type_, depth, given)
    here = _declare(maker, type_, given)
    there = _declare(maker, maker.floats(), given)
    for _, me, parts in (here, there):
        parts.append(maker.read(me.type, depth - 1, given))
    maker.declared += [here[1], there[1]]
    for (_, me, parts), (_, other, _) in ((here, there), (there, here)):
        further = [me.call] if maker.number(2) else []
        sides = maker.both([other.call, *further, maker.read(PAIR, depth - 1, given)], given)
        types = TupleType((other.type, *[me.type for _ in further], PAIR))
        parts.append(sides.then(maker.function(types, me.type), *maker.collect(me.type)))
    for declaration, me, parts in (here, there):
        maker.declared.remove(me)
        _define(declaration, given, parts)
    return here[1].call


def called(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    found: Declared = maker.one_of([d for d in maker.declared if (d.type, d.given) == (type_, given)])
    return found.call


def _body(maker: Maker, me: Declared, depth: int) -> Recipe:
    """Return a definition in which declarations are sure to be called."""
    if not is_of_floats(me.type):
        beside = maker.read(VOID, depth, me.given)
        if maker.number(2):
            return maker.both([me.call, beside], me.given).then(fb.GetItem(0))
        return maker.read(me.type, depth, me.given)
    if me.type in (STATE, PAIR) and maker.number(2):
        return cell(maker, me.type, depth, me.given, me)
    match maker.number(5):
        case 3:  # of any number of parts
            parts = maker.listed(me.call, me.given)
            if maker.number(2):
                return parts.then(summary(maker, me.type, me.type))
            kind = maker.one_of(TENSORS)
            both = maker.both([maker.read(kind, depth, me.given), parts], me.given)
            return both.then(maker.function(TupleType((kind, SequenceType(me.type))), me.type))
        case 4 if me.given:  # with something new given
            new = [maker.read(t, depth, me.given) for t in me.given]
            down = Recipe(whole(me.given), me.call.data)
            return maker.both([down, *new], me.given).then(me.call.block)
    return _of_parts(maker, me, depth)


def _of_parts(maker: Maker, me: Declared, depth: int) -> Recipe:
    """Compute it of parts, some of them this declaration or another one under way."""
    others = [d for d in maker.declared if d.given == me.given and is_of_floats(d.type)]
    sides, types = [me.call], [me.type]
    for _ in range(maker.number(3)):
        other = maker.one_of([None, *others])
        kind = other.type if other else maker.one_of(TENSORS)
        if other:
            sides.append(other.call)
        else:  # another recursion in this one, which may come back to it
            deeper = depth > 0 and maker.left > 0 and maker.number(2)
            sides.append(
                (recursive(maker, kind, depth, me.given)) if deeper else maker.read(kind, depth, me.given)
            )
        types.append(kind)
    return maker.both(sides, me.given).then(maker.function(TupleType(tuple(types)), me.type))
