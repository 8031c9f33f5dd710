"""What a block means, said a second time: an interpreter of blocks on one example, eager and slow.

It shares with the package only the blocks' attributes, their static types and the interpreter of
graphs; no builder's region, tracing program, cell, schedule or kernel takes part. Gradients come
from it as finite differences. It knows inference only: dropout drops nothing.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, reduce
from itertools import repeat
from typing import Any

import numpy as np

import foldbatch as fb
from foldbatch.blocks.block import Block
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.building import build
from foldbatch.blocks.choice import Reference
from foldbatch.blocks.composition import Wire
from foldbatch.blocks.drafts import type_of
from foldbatch.blocks.function import TensorBlock
from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, input_node, lift
from foldbatch.static.op import Axis, ragged
from foldbatch.types import OBJECT, VOID, SequenceType, TensorType, TupleType, Type
from tests.oracle.values import (
    Given,
    Listed,
    Repeated,
    as_object,
    elements,
    item_of,
    listed,
    plain,
    type_of_value,
    zero,
)

__all__ = ["WALKS", "Meaning", "apply", "meaning", "plain"]

WALKS: list[Any] = []  # what walks that stand for blocks make of values; `tests.walks.exact` says it

OVER_ALL = {fb.Sum: np.add, fb.Mean: np.add, fb.Min: np.minimum, fb.Max: np.maximum}


@dataclass(slots=True)
class Meaning:
    """What an example makes of a block: the result, the summed losses, metrics and collections by name."""

    result: Any = None
    loss: float = 0.0
    metrics: dict[str, list[tuple[Any, Any]]] = field(default_factory=lambda: defaultdict(list))
    collected: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))


def meaning(block: Block, example: Any) -> Meaning:
    found = Meaning()
    found.result = plain(apply(block, Given(example), found))
    return found


def apply(block: Block, value: Any, log: Meaning) -> Any:
    """Return what a block makes of a value; losses, metrics and what is collected go into the log."""
    match block:
        case fb.functions.Walk():
            return WALKS[0](block, value)
        case fb.Pipe():
            for part in block.blocks:
                value = apply(part, value, log)
            return value
        case Reference():
            declaration = block.declaration
            assert declaration.block is not None
            value = as_object(value) if declaration.input_type == OBJECT else value
            result = apply(declaration.block, value, log)
            return as_object(result) if declaration.output_type == OBJECT else result
        case fb.Composition():
            return _composed(block, value, log)
        case fb.Record():
            items = [None if value is None else item_of(value, key) for key, _ in block.blocks]
            return tuple(apply(part, item, log) for (_, part), item in zip(block.blocks, items, strict=True))
        case fb.AllOf():
            return tuple(apply(part, value, log) for part in block.blocks) or None
        case fb.OneOf():
            return _chosen(block, value, log)
        case fb.Optional():
            if as_object(value).value is not None:
                return apply(block.some, value, log)
            return _default(block.none, output_type(block.some, OBJECT), log)
        case fb.Map():
            return _mapped(block.block, value, log)
        case fb.ZipWith():
            return _mapped(block.block, _zipped(value), log)
        case fb.Zip():
            return _zipped(value)
        case fb.Broadcast():
            return Repeated(value)
        case fb.NGrams():
            found, element = elements(value)
            grams = [tuple(found[i : i + block.n]) for i in range(len(found) - block.n + 1)]
            if element == OBJECT:
                return Given([tuple(plain(item) for item in gram) for gram in grams])
            return Listed(grams, TupleType((element,) * block.n))
        case fb.Fold():
            state = apply(block.start, None, log)
            for element in elements(value)[0]:
                state = apply(block.combine, (state, element), log)
            return state
        case fb.RNN():
            return _run(block, value, log)
        case fb.Reduce():
            return _reduced(block, value, log)
        case fb.Sum() | fb.Mean() | fb.Min() | fb.Max():
            found, element = elements(value)
            if not found:
                return zero(element)
            total = reduce(OVER_ALL[type(block)], found)
            return np.asarray(total / len(found) if isinstance(block, fb.Mean) else total)
        case fb.blocks.Collect():
            log.collected[block.name].append(value)
            return value
        case fb.blocks.Collected():
            return _collected(block, value, log)
        case fb.Loss():
            log.loss += float(value)
            return None
        case fb.Metric():
            tensor, label = value if isinstance(value, tuple) else (value, Given(None))
            log.metrics[block.name].append((np.array(tensor), label.value))
            return None
        case fb.Dropout():
            return value
        case TensorBlock():
            return computed(block, value)
    return _read(block, value)


def _read(block: Block, value: Any) -> Any:
    """Apply a block that holds no other."""
    match block:
        case fb.Identity():
            return value
        case fb.Void():
            return None
        case fb.Tensor():
            return np.asarray(as_object(value).value, block.type.dtype)
        case fb.InputTransform():
            return Given(block.fn(as_object(value).value))
        case fb.FromTensor():
            source = block.tensor
            return np.array(source.value if isinstance(source, Parameter) else source)
        case fb.Zeros():
            return zero(block.type)
        case fb.OneHot():
            numbers = np.arange(block.start, block.stop)
            return (numbers == as_object(value).value).astype(block.type.dtype)
        case fb.OneHotFromList():
            here = [element == as_object(value).value for element in block.elements]
            return np.array(here, block.type.dtype)
        case fb.Length():
            whole = value.items if isinstance(value, Listed) else value
            return np.array(len(whole if isinstance(whole, tuple | list) else whole.value), block.type.dtype)
        case fb.blocks.Items():
            return Given(sorted(as_object(value).value.items()))
        case fb.GetItem():
            return item_of(value, block.key)
        case fb.Slice():
            return item_of(value, block.bounds)
        case fb.Nth():
            value = as_object(value)
            source, number = (item_of(value, 0), item_of(value, 1))
            items, _ = elements(source)
            return items[as_object(number).value]
    raise AssertionError(block)


@cache
def output_type(block: Block, input_type: Type) -> Type:
    builder = Builder()
    with builder.define(builder.declare(block, "probe", input_type, VOID), "probe") as argument:
        return type_of(build(block, builder, argument))


def _default(block: Block | None, type_: Type, log: Meaning) -> Any:
    return zero(type_) if block is None else apply(block, None, log)


def _chosen(block: fb.OneOf, value: Any, log: Meaning) -> Any:
    if isinstance(block.key_fn, Block):
        key = as_object(apply(block.key_fn, value, log)).value
    else:
        key = block.key_fn(as_object(value).value)
    if block.pre_block is not None:
        value = apply(block.pre_block, value, log)
    if block.listed:
        return apply(block.cases[key][1], value, log)
    return apply(next(case for name, case in block.cases if name == key), value, log)


def _composed(block: fb.Composition, value: Any, log: Meaning) -> Any:
    """Evaluate wires in the order in which they were made, sources first."""
    wires = block._wires
    results: dict[Wire, Any] = {block.input: value}

    def result(source: Any) -> Any:
        if isinstance(source, tuple):
            return tuple(map(result, source))
        if isinstance(source, Block):  # it stands for its only use; one that reads nothing needs none
            uses = [wire for wire in wires if wire.block is source]
            return result(uses[0]) if uses else apply(source, None, log)
        if source not in results:
            read = [result(s) for s in source.sources]
            whole = read[0] if len(read) == 1 else tuple(read) or None
            results[source] = whole if source.block is None else apply(source.block, whole, log)
        return results[source]

    for wire in wires:
        if not wire.selects:
            result(wire)
    return result(block.output.wire)


def _mapped(block: Block, value: Any, log: Meaning) -> Any:
    if isinstance(value, Repeated):
        return Repeated(apply(block, value.value, log))
    items, element = elements(value)
    if not items and element == VOID:  # nothing tells what they would be
        return Listed([], VOID)
    return listed([apply(block, item, log) for item in items], output_type(block, element))


def _zipped(value: Any) -> Any:
    value = as_object(value)
    if isinstance(value, Given):
        return Given(list(zip(*value.value)))  # noqa: B905 - the shortest ends
    if all(isinstance(member, Repeated) for member in value):
        return Repeated(tuple(member.value for member in value))
    members = [
        (repeat(m.value), type_of_value(m.value)) if isinstance(m, Repeated) else elements(m) for m in value
    ]
    return Listed(list(zip(*(m for m, _ in members))), TupleType(tuple(t for _, t in members)))  # noqa: B905


def _run(block: fb.RNN, value: Any, log: Meaning) -> Any:
    if block.initial_state_from_input:
        value, state = value
        items, element = elements(value)
    else:
        items, element = elements(value)
        known = block.initial_state is None and hasattr(block.cell, "state_type")
        if known:
            type_ = block.cell.state_type(element)
        elif block.initial_state is None:
            type_ = block.cell.output_type.items[1]
        else:
            type_ = VOID
        state = _default(block.initial_state, type_, log)
    out = output_type(block.cell, TupleType((element, type_of_value(state)))).items[0]
    outputs = []
    for item in items:
        output, state = apply(block.cell, (item, state), log)
        outputs.append(output)
    return listed(outputs, out), state


def _reduced(block: fb.Reduce, value: Any, log: Meaning) -> Any:
    level, element = elements(value)
    while len(level) > 1:
        pairs = [tuple(level[i : i + 2]) for i in range(0, len(level), 2)]
        level = [apply(block.combine, pair, log) if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0] if level else _default(block.default, element, log)


def _collected(block: fb.blocks.Collected, value: Any, log: Meaning) -> Any:
    found = log.collected[block.name]
    before = len(found)
    result = apply(block.block, value, log)
    mine = found[before:]
    del found[before:]
    return result, Listed(mine, output_type(block, type_of_value(value)).items[1].element)


def computed(block: TensorBlock, value: Any) -> Any:
    applied = _applied(block, type_of_value(value))
    found = evaluate(applied.graph, list(_arrays(value)))
    arrays = iter([np.asarray(x) for x in found])

    def rebuilt(part: Any) -> Any:
        return tuple(map(rebuilt, part)) if isinstance(part, tuple | list) else next(arrays)

    return rebuilt(applied.result)


@dataclass(frozen=True, slots=True)
class _Applied:
    """A function of tensors applied to symbols: the graph, and the structure that its outputs stand in."""

    graph: Graph
    result: Any


@lru_cache(maxsize=1000)
def _applied(block: TensorBlock, type_: Type) -> _Applied:
    """Apply a function to symbols of a type, through a graph of its own.

    It sees no numbers, so that one graph serves every call, whatever example or value of parameters it is of.
    """
    inputs: list[Node] = []
    argument = _symbols(type_, inputs)
    if isinstance(block, fb.Concat):
        parts = [ops.expand_dims(x, 0) if x.ndim == 0 else x for x in _nodes(argument)]
        result = ops.concat(parts, block.axis)
    else:
        result = block.apply(*argument) if isinstance(argument, tuple) else block.apply(argument)
    return _Applied(Graph(tuple(inputs), tuple(_nodes(result))), result)


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _nodes(item)
    elif value is not None:
        yield lift("oracle", (value,))[0]


def _symbols(type_: Type, inputs: list[Node]) -> Any:
    """Return symbolic tensors in the structure of a type, having noted them in order."""
    match type_:
        case TupleType():
            return tuple(_symbols(item, inputs) for item in type_)
        case SequenceType():
            return _along(type_.element, ragged(), inputs)
        case TensorType():
            inputs.append(input_node(type_))
            return inputs[-1]
    assert type_ == VOID, type_
    return None


def _along(type_: Type, axis: Axis, inputs: list[Node]) -> Any:
    """Return symbolic tensors along a ragged axis, one in each place of an element's structure."""
    if isinstance(type_, TupleType):
        return tuple(_along(item, axis, inputs) for item in type_)
    assert isinstance(type_, TensorType), type_
    inputs.append(input_node(type_, axis))
    return inputs[-1]


def _arrays(value: Any) -> Iterator[Any]:
    """Yield the arrays of a value in the order of its symbols; of a sequence, a list of arrays for each."""
    match value:
        case None:
            return
        case tuple():
            for item in value:
                yield from _arrays(item)
        case Listed():
            yield from _lists(value.element, value.items)
        case _:
            yield value


def _lists(type_: Type, items: Sequence[Any]) -> Iterator[list[Any]]:
    if isinstance(type_, TupleType):
        for i, part in enumerate(type_):
            yield from _lists(part, [item[i] for item in items])
    else:
        yield list(items)
