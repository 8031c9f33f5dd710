"""Making sequences of sequences, and values of sequences."""

from typing import Any

import foldbatch as fb
from foldbatch.blocks.block import Block
from foldbatch.types import SequenceType, TensorType, TupleType, Type
from tests.programs.expressions import apart
from tests.programs.leaves import directly
from tests.programs.maker import Maker
from tests.programs.recipes import (
    FLOAT,
    PAIR,
    STATE,
    TENSORS,
    TRIPLE,
    Data,
    Given,
    Recipe,
    Source,
    has_zero,
    is_of_floats,
    items,
    many_of,
    spread,
    whole,
)


def summary(maker: Maker, source: Type, target: Type) -> Block:
    """Return a block from a sequence of one type of floats to another."""
    ways = [_function_of_all, _fold, _last_state]
    if source == target:
        ways += [_reduce] * 3
        if isinstance(target, TensorType):
            ways += [_sum] * 3
    block: Block = maker.one_of(ways)(maker, source, target)
    return block


def _function_of_all(maker: Maker, source: Type, target: Type) -> Block:
    return maker.function(SequenceType(source), target)


def _fold(maker: Maker, source: Type, target: Type) -> Block:
    return fb.Fold(maker.function(TupleType((target, source)), target), maker.constant(target))


def _last_state(maker: Maker, source: Type, target: Type) -> Block:
    return _rnn(maker, source, maker.one_of(TENSORS), target) >> fb.GetItem(1)


def _reduce(maker: Maker, source: Type, target: Type) -> Block:
    combine = maker.function(TupleType((source, source)), source)
    if maker.number(3) == 2:
        combine = combine >> fb.AllOf(fb.Identity(), maker.sink(source)) >> fb.GetItem(0)
    return fb.Reduce(combine, maker.constant(source) if maker.number(2) else None)


def _sum(maker: Maker, source: Type, target: Type) -> Block:
    return maker.one_of([fb.Sum, fb.Mean])()


def _rnn(maker: Maker, x: Type, out: Type, state: Type, *, given: bool = False) -> Block:
    """Return an RNN over elements of a type; one that is `given` reads its first state."""
    cell: Block
    fits = x == TRIPLE and maker.number(3)
    if fits and (out, state) == (PAIR, STATE):
        cell = maker.layer("lstm")
    elif fits and (out, state) == (PAIR, PAIR):
        cell = maker.layer("gru")
    else:
        cell = maker.function(TupleType((x, state)), TupleType((out, state)))
        fits = cell.output_type is not None
    if given:
        return fb.RNN(cell, initial_state_from_input=True)
    return fb.RNN(cell, None if fits and maker.number(2) else maker.constant(state))


def summarised(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """Compute floats of a sequence."""
    source = maker.floats() if maker.number(3) == 0 else type_
    if maker.number(4) == 3:  # a tuple is a sequence, too
        tuple_ = TupleType((source,) * (1 + maker.number(3)))
        ways = [_fold, _last_state] + ([_reduce] if source == type_ else [])
        if source == type_ and isinstance(type_, TensorType):
            ways += [_sum]
        block = maker.one_of(ways)(maker, source, type_)
        return maker.read(tuple_, depth, given).then(block)
    return maker.read(SequenceType(source), depth, given).then(summary(maker, source, type_))


def folded(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """Fold objects, each read by a block that is given the state."""
    if not has_zero(type_):
        return directly(maker, type_, depth, given)
    body = maker.read(type_, depth, (*given, type_))
    combine = fb.AllOf(*spread(1, given), fb.GetItem(0)) >> body.block
    fold = fb.Fold(combine, maker.constant(type_))
    if given:
        return Recipe(items(given) >> fold, many_of(body))
    return maker.listed(Recipe(fb.Identity(), body.data)).then(fold)


def run(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """Run a cell along a sequence; take its outputs, or its last state."""
    outputs = isinstance(type_, SequenceType)
    mine = type_.element if isinstance(type_, SequenceType) else type_
    if not is_of_floats(mine):
        return directly(maker, type_, depth, given)
    if outputs:
        out, state = mine, maker.floats()
    else:
        out, state = maker.one_of(TENSORS), mine
    match maker.number(3):
        case 0:  # over objects, with a cell that reads them
            pair = TupleType((out, state))
            if not given:
                cell = maker.read(pair, depth, (state,))
                found = maker.listed(Recipe(fb.Identity(), cell.data))
                found = found.then(fb.RNN(cell.block, maker.constant(state)))
            else:
                cell = maker.read(pair, depth, (*given, state))
                block = fb.AllOf(*spread(0, given), fb.GetItem(1)) >> cell.block
                found = Recipe(items(given) >> fb.RNN(block, maker.constant(state)), many_of(cell))
        case 1:
            x = maker.one_of([TRIPLE, *TENSORS])
            parts = [maker.read(SequenceType(x), depth, given), maker.read(state, depth, given)]
            found = maker.both(parts, given).then(_rnn(maker, x, out, state, given=True))
        case _:
            x = maker.one_of([TRIPLE, *TENSORS])
            found = maker.read(SequenceType(x), depth, given).then(_rnn(maker, x, out, state))
    return found.then(fb.GetItem(0 if outputs else 1))


def extreme(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """The minimum or maximum of tensors that lie apart, so that it is smooth."""
    assert isinstance(type_, TensorType)
    x = maker.read(type_, depth)
    shape = type_.shape
    element = fb.Record((x.block, fb.Tensor(shape, FLOAT))) >> fb.Function(apart)

    def data(source: Source, depth: int) -> Any:
        count = least + source.number(4 - least)
        return [[x.data(source, depth), at] for at in source.apart(count, shape)]

    if maker.number(3) == 2:  # of a tuple
        least = 3
        parts: Block = fb.AllOf(*(fb.GetItem(i) >> element for i in range(3)))
    else:
        least = 0
        parts = fb.Map(element)
    return Recipe(whole(given) >> parts >> maker.one_of([fb.Max, fb.Min])(), data)


def zipped(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """Make one sequence of several, or of one and what is repeated."""
    assert isinstance(type_, SequenceType)
    element = type_.element
    ready = isinstance(element, TupleType) and element.items and has_zero(element) and maker.number(2)
    if not ready and not is_of_floats(element):
        return directly(maker, type_, depth, given)
    if ready:
        assert isinstance(element, TupleType)
        types, end = element.items, fb.Zip()
    else:
        types = tuple(maker.floats() for _ in range(1 + maker.number(3)))
        function = maker.function(TupleType(types), element)
        end = maker.one_of([fb.ZipWith(function), fb.Zip() >> fb.Map(function)])
    sure = maker.number(len(types))  # one of them must end

    def part(number: int, t: Type) -> Recipe:
        if number == sure or maker.number(2):
            return maker.read(SequenceType(t), depth, given)
        if is_of_floats(t) and maker.number(2):  # what is done to a broadcast is done once
            other = maker.floats()
            mapped = fb.Map(maker.function(other, t))
            return maker.read(other, depth, given).then(fb.Broadcast(), mapped)
        return maker.read(t, depth, given).then(fb.Broadcast())

    parts = [part(number, t) for number, t in enumerate(types)]
    return maker.both(parts, given).then(end)


def neighbours(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """Make a sequence of the neighbours in another one."""
    assert isinstance(type_, SequenceType)
    element = type_.element
    if isinstance(element, TupleType) and element.items and len(set(element.items)) == 1 and maker.number(2):
        ngrams = fb.NGrams(len(element))
        return maker.read(SequenceType(element.items[0]), depth, given).then(ngrams)
    if not is_of_floats(element):
        return directly(maker, type_, depth, given)
    n, item = 1 + maker.number(3), maker.floats()
    function = maker.function(TupleType((item,) * n), element)
    return maker.read(SequenceType(item), depth, given).then(fb.NGrams(n), fb.Map(function))


def sliced(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    start, stop, step = maker.one_of([None, 1, -2]), maker.one_of([None, 3, -1]), maker.one_of([None, 2, -1])
    ways: list[Block] = [fb.Slice(start=start, stop=stop, step=step), fb.GetItem(slice(start, stop, step))]
    return maker.read(type_, depth, given).then(maker.one_of(ways))


def selected(maker: Maker, type_: Type, depth: int, given: Given) -> Recipe:
    """Read a type as one of several of its kind."""
    element = maker.read(type_, depth, given)
    at = maker.one_of([0, -1])
    match maker.number(4):
        case 0:
            return maker.listed(element, given, least=1).then(fb.GetItem(at))
        case 1 if not given:  # find the object first
            data = _numbered(element)
            return Recipe(fb.Nth() >> element.block, data)
    many = fb.GetItem(0) >> fb.GetItem(0) if given else fb.GetItem(0)
    number = fb.GetItem(0) >> fb.GetItem(1) if given else fb.GetItem(1)
    repeated = map(fb.GetItem, range(1, len(given) + 1))
    sequence = (fb.AllOf(many, *repeated) >> items(given) if given else many) >> fb.Map(element.block)
    return Recipe(fb.AllOf(sequence, number) >> fb.Nth(), _numbered(element))


def _numbered(element: Recipe) -> Data:
    """Return a way to draw a list, and the number of one of its items."""

    def data(source: Source, depth: int) -> Any:
        count = 1 + source.number(3)
        return [element.data(source, depth) for _ in range(count)], source.number(2 * count) - count

    return data
