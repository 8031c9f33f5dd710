"""Blocks whose input leaves the model sideways: losses, metrics, values that are collected."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from foldbatch.blocks.block import Block, as_block, named
from foldbatch.blocks.builder import Builder, refuse_ragged
from foldbatch.blocks.building import build
from foldbatch.blocks.drafts import MetricVisit, Object, Sequence, UnknownTypeError, Value, leaves, type_of
from foldbatch.blocks.flow import empty_list
from foldbatch.blocks.tracing import Apply, Constant, Count
from foldbatch.errors import BlockTypeError, BlockValueError
from foldbatch.static import ops
from foldbatch.static.graph import Node
from foldbatch.types import TensorType, TupleType, Type, VoidType, describe_value


class Loss(Block[TensorType, VoidType]):
    """Adds a scalar to the loss of the batch; yields nothing.

    Args:
        name: under which `results.losses` has the sum; several blocks may share it. The loss of the batch
            is the sum of all, whatever their names.
        weight: what the scalar is multiplied by first. So the sum in `results.losses` is that of the weighted
            scalars. With 0 the scalar is still computed, and counts 0.

    Raises:
        BlockValueError: when the weight is not a finite number.
        BlockTypeError: when the input is not a float scalar.

    >>> (fb.Scalar() >> fb.Loss("loss")).eval(2.0) is None
    True
    """

    def __init__(self, name: str = "loss", weight: float = 1.0) -> None:
        self.name = named(name, "Loss")
        number: object = weight
        if (
            not isinstance(number, int | float | np.number)
            or isinstance(number, bool)
            or not math.isfinite(number)
        ):
            fix = "1 counts the loss as it is, 0.5 half of it"
            raise BlockValueError("Loss weight", "a finite number", describe_value(weight), fix)
        self.weight = float(weight)

    def build(self, builder: Builder, value: Value) -> None:
        """Add the tensor to the region's losses, if the program has losses; yields nothing."""
        if not isinstance(value, Node) or value.shape or not value.type.is_float:
            fix = "reduce it, for example with ops.mean"
            if isinstance(value, Node) and not value.type.is_float:
                fix = "make a float of it with ops.cast"
            raise BlockTypeError(builder.where(self), "a float scalar", str(type_of(value)), fix)
        refuse_ragged(value, builder, self)
        if builder.wants("losses"):
            weighted = value if self.weight == 1 else value * self.weight
            builder.region.losses.append((self.name, ops.batched(weighted)))


class Metric(Block[TensorType | TupleType, VoidType]):
    """Collects a tensor at every visit, over the whole batch; yields nothing.

    The input is a tensor, or a pair of a tensor and an object that labels it. Values are in the order
    of visits: example by example, and within an example in the order in which blocks are applied.
    So in a recursion a metric of what a node holds, applied before its children, has parents first; a
    metric of what is computed from the children has children first. A label tells whose a value is. It comes
    back as the object that it is, not as a copy: who writes to it later writes to the label.

    Args:
        name: under which the values are found; several blocks may share it if their types agree. Their
            values are then mixed, in the order of visits.

    Raises:
        BlockTypeError: when the input is neither, or the name already stands for another type.

    >>> (fb.Scalar() >> fb.Metric("seen")).eval(2.0)
    (None, {'seen': [array(2., dtype=float32)]})

    The nodes of a tree are lists of a number and children. Before the children, parents come first;
    behind them, last:

    >>> def metric(name):
    ...     return fb.AllOf(fb.Identity(), fb.Metric(name)) >> fb.GetItem(0)
    >>> tree = fb.ForwardDeclaration(output_type="float32")
    >>> own = fb.GetItem(0) >> fb.Scalar() >> metric("number")
    >>> children = fb.GetItem(1) >> fb.Map(tree()) >> fb.Sum()
    >>> tree.resolve_to(fb.AllOf(own, children) >> fb.Function(lambda a, b: a + b) >> metric("sum"))
    >>> examples = [[1, [[2, [[3, []]]], [4, []]]], [5, []]]
    >>> results = fb.compile(tree()).run(examples, metrics=True)
    >>> for name, m in results.metrics.items():
    ...     print(name, m.values, m.examples, m.nodes)
    number [1. 2. 3. 4. 5.] [0 0 0 0 1] [0 1 2 3 0]
    sum [ 3.  5.  4. 10.  5.] [0 0 0 0 1] [0 1 2 3 0]
    """

    def __init__(self, name: str) -> None:
        self.name = named(name, "Metric")

    def build(self, builder: Builder, value: Value) -> None:
        """Add the tensor, and the label if there is one, to the region's metrics; yields nothing."""
        match value:
            case Node():
                tensor, label = value, None
            case (Node() as tensor, Object() as label):
                pass
            case _:
                expected, fix = (
                    "a tensor, or a pair (tensor, object)",
                    "to label values, put the label second, as an object: before Scalar",
                )
                raise BlockTypeError(builder.where(self), expected, str(type_of(value)), fix)
        refuse_ragged(tensor, builder, self)
        metric_type = builder.metric_types.setdefault(self.name, tensor.type)
        if metric_type != tensor.type:
            expected, fix = f"{metric_type}, as elsewhere under this name", "use another name"
            raise BlockTypeError(builder.where(self), expected, str(tensor.type), fix)
        if builder.wants("metrics"):
            builder.region.metrics.append(MetricVisit(self.name, ops.batched(tensor), label))


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
        """Note the value for its list, which the region appends to when it ends; return the value."""
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


class Collected(Block[Any, TupleType]):
    """Applies a block; yields its result and, as a sequence, all that `Collect` saw meanwhile.

    The sequence is in the order of visits: where `Collect` stands behind the children, these come before
    their parents. So a model can attend to all nodes of a tree.

    Args:
        block: a block with a `Collect` inside.
        name: of the collection.

    Raises:
        BlockTypeError: when there is no such `Collect` in the block.

    >>> twice = fb.Scalar("int32") >> fb.Function(lambda x: x * 2) >> fb.blocks.Collect()
    >>> [int(x) for x in fb.blocks.Collected(fb.Map(twice)).eval([1, 2])[1]]
    [2, 4]
    """

    def __init__(self, block: object, name: str = "nodes") -> None:
        self.block = as_block(block, "Collected")
        self.name = named(name, "Collected")

    @property
    def input_type(self) -> Type | None:
        return self.block.input_type

    def build(self, builder: Builder, value: Value) -> Value:
        """Build the block; return its result, and the list of the values collected in it."""
        builder.flush()  # values collected before belong to outer blocks
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
        variable = str(collection.expression)
        builder.add(Apply(builder.blame(), name, CUT_OFF, (variable, mark), changed=variable))
        return result, Sequence(name, collection.element, collection.wires)


def _cut_off(items: list[object], mark: int) -> list[object]:
    tail = items[mark:]
    del items[mark:]
    return tail


CUT_OFF = Constant("cut_off", _cut_off)
