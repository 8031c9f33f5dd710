"""Blocks that sum up a sequence of tensors in one call, however long it is."""

from __future__ import annotations

from functools import reduce

from foldbatch.blocks.block import Block
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.lists import expect_sequence
from foldbatch.blocks.values import Sequence, Value, type_of
from foldbatch.errors import BlockTypeError, GraphError
from foldbatch.static import ops
from foldbatch.static.graph import Node
from foldbatch.types import SequenceType, TensorType, TupleType


class _Summary(Block[TupleType | SequenceType, TensorType]):
    """A tensor made of the tensors of a sequence or a tuple, elementwise."""

    def build(self, builder: Builder, value: Value) -> Node:
        if isinstance(value, tuple) and value and all(isinstance(item, Node) for item in value):
            nodes = [item for item in value if isinstance(item, Node)]
            if len({node.type for node in nodes}) == 1 and all(node.axis.rank < 2 for node in nodes):
                return self.of_tensors(nodes)
        if isinstance(value, Node) and value.axis.rank > 1:
            return self.of_elements(value)
        sequence: Sequence = expect_sequence(self, builder, value)
        elements = builder.elements(sequence)
        if not isinstance(elements, Node):
            fix = "select one of them, as in Map(GetItem(0))"
            found = str(type_of(sequence))
            raise BlockTypeError(builder.where(self), "a sequence of single tensors", found, fix)
        return self.of_elements(elements)

    def of_tensors(self, nodes: list[Node]) -> Node:
        """Return the result for several tensors."""
        raise NotImplementedError

    def of_elements(self, elements: Node) -> Node:
        """Return the result for a tensor along the axis of a sequence's elements."""
        raise NotImplementedError


class Sum(_Summary):
    """Adds the tensors of a sequence; zeros if it is empty.

    Raises:
        BlockTypeError: when the input is no finite sequence of tensors, or they are bools.

    >>> from foldbatch.blocks.leaves import Scalar
    >>> from foldbatch.blocks.sequences import Map
    >>> [float((Map(Scalar()) >> Sum()).eval(x)) for x in ([1, 2, 3], [])]
    [6.0, 0.0]
    """

    def of_tensors(self, nodes: list[Node]) -> Node:
        return reduce(ops.add, map(self._number, nodes))

    def of_elements(self, elements: Node) -> Node:
        return ops.segment_sum(self._number(elements))

    def _number(self, node: Node) -> Node:
        if node.type.dtype == "bool":  # whose sum would be a bool
            fix = "to count flags, read them with Scalar('int32')"
            raise GraphError(repr(self), "numbers", str(node.type), fix)
        return node


class Min(_Summary):
    """The elementwise minimum of the tensors of a sequence; zeros if it is empty.

    Raises:
        BlockTypeError: when the input is no finite sequence of tensors.

    >>> from foldbatch.blocks.leaves import Scalar
    >>> from foldbatch.blocks.sequences import Map
    >>> [float((Map(Scalar()) >> Min()).eval(x)) for x in ([3, 2, 5], [])]
    [2.0, 0.0]
    """

    def of_tensors(self, nodes: list[Node]) -> Node:
        return reduce(ops.minimum, nodes)

    def of_elements(self, elements: Node) -> Node:
        return ops.segment_min(elements)


class Max(_Summary):
    """The elementwise maximum of the tensors of a sequence; zeros if it is empty.

    Raises:
        BlockTypeError: when the input is no finite sequence of tensors.

    >>> from foldbatch.blocks.leaves import Scalar
    >>> from foldbatch.blocks.sequences import Map
    >>> [float((Map(Scalar()) >> Max()).eval(x)) for x in ([3, 2, 5], [])]
    [5.0, 0.0]
    """

    def of_tensors(self, nodes: list[Node]) -> Node:
        return reduce(ops.maximum, nodes)

    def of_elements(self, elements: Node) -> Node:
        return ops.segment_max(elements)


class Mean(_Summary):
    """The mean of the tensors of a sequence; zeros if it is empty.

    Raises:
        BlockTypeError: when the input is no finite sequence of float tensors.

    >>> from foldbatch.blocks.leaves import Scalar
    >>> from foldbatch.blocks.sequences import Map
    >>> [float((Map(Scalar()) >> Mean()).eval(x)) for x in ([1, 2, 6], [])]
    [3.0, 0.0]
    """

    def of_tensors(self, nodes: list[Node]) -> Node:
        total: Node = reduce(ops.add, nodes)
        return total * (1.0 / len(nodes))

    def of_elements(self, elements: Node) -> Node:
        return ops.segment_mean(elements)
