"""Collecting the values of all nodes of an example, wherever in a recursion they arise."""

from __future__ import annotations

from typing import Any

from foldbatch.blocks.block import Block, as_block, build, named
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.lists import empty_list
from foldbatch.blocks.tracing import Apply, Constant, Count
from foldbatch.blocks.values import Sequence, UnknownTypeError, Value, leaves, type_of
from foldbatch.errors import BlockTypeError
from foldbatch.static.graph import Node
from foldbatch.types import TupleType, Type


class Collect(Block[Any, Any]):
    """Passes its input on, and adds it to the sequence that the `Collected` around it yields.

    Args:
        name: of the collection, where there are several.

    Raises:
        BlockTypeError: when the input is not made of tensors, or of another type than elsewhere.
    """

    def __init__(self, name: str = "nodes") -> None:
        self.name = named(name, "Collect")

    def build(self, builder: Builder, value: Value) -> Value:
        where, type_ = builder.where(self), type_of(value)
        tensors = list(leaves(value))
        if not tensors or not all(isinstance(leaf, Node) for leaf in tensors):
            raise BlockTypeError(where, "tensors", str(type_), "collect what is computed")
        empty = empty_list(builder.collection(self.name), type_)
        collection = builder.collections.setdefault(self.name, empty)
        if collection.element != type_:
            expected, fix = f"{collection.element}, as elsewhere in {self.name!r}", "use another name"
            raise BlockTypeError(where, expected, str(type_), fix)
        builder.region.collected.append((collection, value))
        return value

    def arguments(self) -> str:
        return "" if self.name == "nodes" else repr(self.name)


class Collected(Block[Any, TupleType]):
    """Applies a block; yields its result and, as a sequence, all that `Collect` saw meanwhile.

    The sequence is in the order of visits: where `Collect` stands behind the children, these come before
    their parents. So a model can attend to all nodes of a tree.

    Args:
        block: a block with a `Collect` inside.
        name: of the collection.

    Raises:
        BlockTypeError: when there is no such `Collect` in the block.

    >>> from foldbatch.blocks.function import Function
    >>> from foldbatch.blocks.leaves import Scalar
    >>> from foldbatch.blocks.sequences import Map
    >>> twice = Scalar("int32") >> Function(lambda x: x * 2) >> Collect()
    >>> [int(x) for x in Collected(Map(twice)).eval([1, 2])[1]]
    [2, 4]
    """

    def __init__(self, block: Any, name: str = "nodes") -> None:
        self.block = as_block(block, "Collected")
        self.name = named(name, "Collected")

    @property
    def input_type(self) -> Type | None:
        return self.block.input_type

    def build(self, builder: Builder, value: Value) -> Value:
        builder.flush()  # what was collected before is not ours
        mark, name = builder.fresh("mark"), builder.fresh("list")
        builder.assign(mark, Count(builder.collection(self.name)))
        result = build(self.block, builder, value)
        collection = builder.collections.get(self.name)
        if collection is None:
            if builder.inferring:
                raise UnknownTypeError
            fix = f"put Collect({self.name!r}) behind what is to be collected"
            raise BlockTypeError(builder.where(self), "a Collect in the block", "none", fix)
        builder.flush(result)
        held = str(collection.expression)
        builder.add(Apply(builder.blame(), name, CUT_OFF, (held, mark), changed=held))
        return result, Sequence(name, collection.element, collection.wires)

    def arguments(self) -> str:
        return repr(self.block) + ("" if self.name == "nodes" else f", {self.name!r}")


def _cut_off(items: list[Any], mark: int) -> list[Any]:
    """Take from a list what stands behind a mark."""
    tail = items[mark:]
    del items[mark:]
    return tail


CUT_OFF = Constant("cut_off", _cut_off)
