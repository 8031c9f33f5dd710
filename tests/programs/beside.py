"""What happens beside the main value: losses, metrics, collections, compositions of several parts."""

from typing import Any

import foldbatch as fb
from foldbatch.static import ops
from foldbatch.types import SequenceType, TupleType, Type
from tests.programs.maker import Maker
from tests.programs.recipes import (
    FLOAT,
    ID,
    PAIR,
    SCALAR,
    STATE,
    TENSORS,
    TRIPLE,
    Given,
    Recipe,
    a_number,
    aside,
    each_of,
    is_of_floats,
)
from tests.programs.sequences import summary


def unchanged(x: Any) -> Any:
    """Return what is given."""
    return x


def beside(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """A loss or a metric beside the value, of it or of something else."""
    main = maker.read(type_, depth, given)
    if is_of_floats(type_) and maker.number(2) == 0:
        return main.then(fb.AllOf(fb.Identity(), maker.sink(type_)), fb.GetItem(0))
    match maker.number(4) if not given else 0:
        case 2:
            label = Recipe(fb.InputTransform(unchanged), a_number(3))
            side = maker.both([maker.read(PAIR, depth), label], ()).then(fb.Metric("labelled"))
        case 3:
            parts = [maker.read(TRIPLE, depth), maker.read(ID, depth)]
            side = maker.both(parts, ()).then(fb.Function(ops.cross_entropy), fb.Loss("entropy"))
        case _:
            kind = maker.one_of(TENSORS)
            side = maker.read(kind, depth, given).then(maker.sink(kind))
    if not maker.collected:  # else others may need what is collected in it
        side = aside(side)
    if maker.number(2):
        return maker.both([main, side], given).then(fb.GetItem(0))
    return maker.both([side, main], given).then(fb.GetItem(1))


def collecting(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """Use all values of a kind that arise inside of something."""
    kind = maker.one_of([PAIR, STATE, SCALAR])
    listed = type_ == SequenceType(kind) or (isinstance(type_, SequenceType) and is_of_floats(type_.element))
    if isinstance(type_, SequenceType) and listed:
        kind = type_.element
    inside = kind if maker.number(2) else maker.one_of(TENSORS)
    name = str(kind)
    maker.collected.append(kind)
    main = maker.read(inside, depth, given)
    if inside == kind and maker.number(2):
        main = main.then(fb.blocks.Collect(name))
    else:
        parts = [maker.read(kind, depth, given).then(fb.blocks.Collect(name)), main]
        at = maker.number(2)
        main = maker.both(parts if at else parts[::-1], given).then(fb.GetItem(at))
    maker.collected.pop()
    all_of_them = Recipe(fb.blocks.Collected(main.block, name), main.data)
    if listed:
        return all_of_them.then(fb.GetItem(1))
    if not is_of_floats(type_):  # nobody needs them, or they are counted
        count = fb.GetItem(1) >> fb.Length(FLOAT) >> maker.sink(SCALAR)
        return maker.both([maker.read(type_, depth, given), all_of_them.then(count)], given).then(
            fb.GetItem(0)
        )
    if maker.number(2):
        return all_of_them.then(fb.GetItem(1), summary(maker, kind, type_))
    return all_of_them.then(maker.function(TupleType((inside, SequenceType(kind))), type_))


def composed(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """Wire several parts, and functions of some of them."""
    types = [type_, *(maker.one_of(TENSORS) for _ in range(maker.number(4)))]
    parts = [maker.read(t, depth, given) for t in types]
    composition = fb.Composition("wired")
    with composition.scope():
        main, *others = [
            part.block.reads(*_of_input(composition, number, given)) for number, part in enumerate(parts)
        ]
        known: list[tuple[Any, Type]] = list(zip(others, types[1:], strict=True))
        if maker.number(3) == 2:
            known.append((fb.FromTensor(maker.free((2,))), PAIR))
        known, unread = _wired(maker, known)
        ends = [(main, type_), *(known[i] for i in unread)]
        if not is_of_floats(type_):
            for wire, t in ends[1:]:
                maker.sink(t).reads(wire)
            composition.output.reads(main)
        elif len(ends) == 1:
            composition.output.reads(main)
        else:
            block = maker.function(TupleType(tuple(t for _, t in ends)), type_)
            composition.output.reads(block.reads(*(wire for wire, _ in ends)))
    return Recipe(composition, each_of(parts))


def _of_input(composition: fb.Composition, number: int, given: Given) -> tuple[Any, ...]:
    """Return what a part reads of a composition's input."""
    if not given:
        return (composition.input[number],)
    return composition.input[0][number], *(composition.input[i] for i in range(1, len(given) + 1))


def _wired(maker: Maker, known: list[tuple[Any, Type]]) -> tuple[list[tuple[Any, Type]], list[int]]:
    """Wire functions of what is known; return all that is known, and the numbers of what nobody reads."""
    unread = set(range(len(known)))
    for _ in range(maker.number(4) if known else 0):
        read = [maker.number(len(known)) for _ in range(1 + maker.number(3))]
        unread -= set(read)
        wires, types = [known[i][0] for i in read], tuple(known[i][1] for i in read)
        out = maker.one_of((*TENSORS, STATE))
        source: Type = types[0] if len(types) == 1 else TupleType(types)
        if len(read) == 3 and maker.number(2):  # wires may stand in tuples
            source = TupleType((types[0], TupleType(types[1:])))
            wires = [wires[0], tuple(wires[1:])]
        block = maker.function(source, out)
        wire: Any = block.reads(*wires)
        unread.add(len(known))
        if out == STATE and maker.number(2):
            known.append((wire[1], PAIR))
        else:
            known.append((block if maker.number(2) else wire, out))  # a block stands for its only use
    return known, sorted(unread)
