"""What a block means, said a second time: an interpreter of blocks on one example, eager and slow.

It shares with the package only the blocks' attributes, their static types and the interpreter of
graphs; no builder's region, tracing program, cell, schedule or kernel takes part. Gradients come
from it as finite differences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from foldbatch.blocks import (
    Concat,
    FromTensor,
    GetItem,
    Identity,
    InputTransform,
    Loss,
    Map,
    Metric,
    OneOf,
    Pipe,
    Void,
)
from foldbatch.blocks.block import Block, build
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.forward import _Reference
from foldbatch.blocks.function import TensorBlock
from foldbatch.blocks.leaves import Tensor
from foldbatch.blocks.records import AllOf, Record
from foldbatch.blocks.values import type_of
from foldbatch.params import Parameter
from foldbatch.static import ops
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, input_node, lift
from foldbatch.static.op import Axis, ragged
from foldbatch.types import OBJECT, VOID, SequenceType, TensorType, TupleType, Type


@dataclass(frozen=True, slots=True)
class Given:
    """A Python object of the example."""

    value: Any


@dataclass(frozen=True, slots=True)
class Listed:
    """A sequence with the type of its elements, which an empty one could not tell."""

    items: list[Any]
    element: Type


@dataclass(slots=True)
class Meaning:
    """What an example makes of a block: the result, the summed losses, and the metrics by name."""

    result: Any = None
    loss: float = 0.0
    metrics: dict[str, list[tuple[Any, Any]]] = field(default_factory=lambda: defaultdict(list))


def meaning(block: Block, example: Any) -> Meaning:
    """Return what a block makes of an example."""
    found = Meaning()
    found.result = plain(_apply(block, Given(example), found))
    return found


def plain(value: Any) -> Any:
    """Return a value as `Program.run` gives it: arrays, lists, tuples, objects."""
    match value:
        case Given():
            return value.value
        case Listed():
            return [plain(item) for item in value.items]
        case tuple():
            return tuple(map(plain, value))
    return value


def _apply(block: Block, value: Any, log: Meaning) -> Any:
    match block:
        case Pipe():
            for part in block.blocks:
                value = _apply(part, value, log)
            return value
        case _Reference():
            assert block.declaration.block is not None
            return _apply(block.declaration.block, value, log)
        case Identity():
            return value
        case Void():
            return None
        case Tensor():
            return np.asarray(value.value, block.type.dtype)
        case InputTransform():
            return Given(block.fn(value.value))
        case FromTensor():
            source = block.tensor
            return np.array(source.value if isinstance(source, Parameter) else source.attrs["value"])
        case GetItem():
            return _item(value, block.key)
        case Record():
            return tuple(_apply(part, _item(value, key), log) for key, part in block.blocks)
        case AllOf():
            return tuple(_apply(part, value, log) for part in block.blocks)
        case OneOf():
            return _chosen(block, value, log)
        case Map():
            return _mapped(block.block, value, log)
        case Loss():
            log.loss += float(value)
            return None
        case Metric():
            tensor, label = value if isinstance(value, tuple) else (value, Given(None))
            log.metrics[block.name].append((np.array(tensor), label.value))
            return None
        case TensorBlock():
            return _computed(block, value)
    raise AssertionError(block)


def _item(value: Any, key: Any) -> Any:
    match value:
        case Given():
            return Given(value.value[key])
        case Listed():
            return value.items[key]
    return value[key]


def _chosen(block: OneOf, value: Any, log: Meaning) -> Any:
    key = (
        _apply(block.key_fn, value, log).value
        if isinstance(block.key_fn, Block)
        else block.key_fn(value.value)
    )
    if block.pre_block is not None:
        value = _apply(block.pre_block, value, log)
    if block.listed:
        return _apply(block.cases[key][1], value, log)
    return _apply(next(case for name, case in block.cases if name == key), value, log)


def _mapped(block: Block, value: Any, log: Meaning) -> Any:
    match value:
        case Given():
            items, element = [Given(item) for item in value.value], OBJECT
        case Listed():
            items, element = value.items, value.element
        case _:
            items, element = list(value), _type(value[0])
    found = [_apply(block, item, log) for item in items]
    type_ = output_type(block, element)
    return Given([item.value for item in found]) if type_ == OBJECT else Listed(found, type_)


@cache
def output_type(block: Block, input_type: Type) -> Type:
    """Return the type that a block yields."""
    builder = Builder()
    with builder.define(builder.declare(block, "probe", input_type, VOID), "probe") as argument:
        return type_of(build(block, builder, argument))


def _type(value: Any) -> Type:
    match value:
        case None:
            return VOID
        case Given():
            return OBJECT
        case Listed():
            return SequenceType(value.element)
        case tuple():
            return TupleType(tuple(map(_type, value)))
    return TensorType(value.shape, value.dtype.name)


def _computed(block: TensorBlock, value: Any) -> Any:
    """Apply a function of tensors to arrays, through a graph of its own."""
    inputs: dict[Node, Any] = {}
    argument = _symbols(value, inputs)
    if isinstance(block, Concat):
        result = ops.concat(
            [ops.expand_dims(x, 0) if x.ndim == 0 else x for x in _nodes(argument)], block.axis
        )
    else:
        result = block.apply(*argument) if isinstance(argument, tuple) else block.apply(argument)
    nodes = list(_nodes(result))
    arrays = iter(
        [np.asarray(x) for x in evaluate(Graph(tuple(inputs), tuple(nodes)), list(inputs.values()))]
    )

    def rebuilt(part: Any) -> Any:
        return tuple(map(rebuilt, part)) if isinstance(part, tuple | list) else next(arrays)

    return rebuilt(result)


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _nodes(item)
    elif value is not None:
        yield lift("oracle", (value,))[0]


def _symbols(value: Any, inputs: dict[Node, Any]) -> Any:
    """Return symbolic tensors in the value's structure, having noted the value of each."""
    match value:
        case None:
            return None
        case tuple():
            return tuple(_symbols(item, inputs) for item in value)
        case Listed():
            return _along(value.element, value.items, ragged(), inputs)
    node = input_node(TensorType(value.shape, value.dtype.name))
    inputs[node] = value
    return node


def _along(type_: Type, items: Sequence[Any], axis: Axis, inputs: dict[Node, Any]) -> Any:
    if isinstance(type_, TupleType):
        return tuple(_along(t, [item[i] for item in items], axis, inputs) for i, t in enumerate(type_))
    assert isinstance(type_, TensorType), type_
    node = input_node(type_, axis)
    inputs[node] = list(items)
    return node
