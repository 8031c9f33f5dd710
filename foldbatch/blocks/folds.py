"""Blocks that consume a sequence: from the left, with outputs, pairwise, or its sum in one call."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from foldbatch.blocks import flow
from foldbatch.blocks.block import Block, as_block
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.building import build
from foldbatch.blocks.drafts import Object, Sequence, Value, as_object, feed, type_of
from foldbatch.blocks.function import zeros
from foldbatch.blocks.tracing import Apply, Assign, Branch, Constant, Filled, Listed, Loop
from foldbatch.errors import BlockTypeError, BlockValueError, GraphError
from foldbatch.static import ops
from foldbatch.static.graph import Node
from foldbatch.types import ObjectType, SequenceType, TensorType, TupleType, Type

UNCHANGED = "a state keeps its type from step to step"


class Fold(Block[ObjectType | TupleType | SequenceType, Any]):
    """Combines a state with one element after the other: ``combine(...combine(start, x_0)..., x_n)``.

    Args:
        combine: a block from ``(state, element)`` to the next state.
        start: a block that reads nothing and yields the first state; of several parts, a tuple of such.

    Raises:
        BlockTypeError: when the input is no finite sequence, or `combine` changes the state's type.

    >>> total = fb.Map(fb.Scalar()) >> fb.Fold(fb.Function(lambda state, x: state + x), fb.Zeros([]))
    >>> float(total.eval(range(5)))
    10.0
    """

    def __init__(self, combine: object, start: object) -> None:
        self.combine = as_block(combine, "Fold.combine")
        self.start = as_block(start, "Fold.start")

    def build(self, builder: Builder, value: Value) -> Value:
        """Build a loop that keeps the state in variables; return its last value."""
        source = flow.expect_list(self, builder, value)
        with builder.at(".start"):
            first = as_object(build(self.start, builder, None))
        state = _begin(builder, first)
        with flow.loop_over(builder, source, ".combine") as element:
            outcome = build(self.combine, builder, (flow.read(builder, state), element))
            flow.assign(builder, state, outcome, UNCHANGED, f"a state of {state.type}, as the start is")
        return flow.read(builder, state)


def _begin(builder: Builder, first: Value) -> flow.Variables:
    """Return variables that hold a first state. Unlike `assign`, this does not end the region."""
    state = flow.declare(builder, type_of(first))
    for slot, variable in zip(builder.flatten(first), state.slots, strict=True):
        builder.assign(str(variable.expression), slot.expression)
        feed(slot.wires, variable.wires)
    return state


class RNN(Block[ObjectType | TupleType | SequenceType, TupleType]):
    """Runs a cell along a sequence; yields ``(outputs, last state)``.

    Args:
        cell: a block from ``(element, state)`` to ``(output, next state)``.
        initial_state: a block that reads nothing and yields the first state, or for a state of several
            parts a tuple of such blocks; by default zeros of the type that the cell yields, if that is
            known (of `LSTMCell` and `GRUCell` it is).
        initial_state_from_input: whether the input is a pair ``(sequence, first state)``.

    Raises:
        BlockValueError: when both options are given.
        BlockTypeError: when the input is no finite sequence, the state's type is not known or changes,
            or the cell yields no pair.

    >>> cell = fb.Function(lambda x, state: (x + state, x + state))
    >>> sums = fb.Map(fb.Scalar()) >> fb.RNN(cell, fb.Zeros([]))
    >>> outputs, last = sums.eval([1, 2, 3])
    >>> [float(x) for x in outputs], float(last)
    ([1.0, 3.0, 6.0], 6.0)
    """

    def __init__(
        self, cell: object, initial_state: object = None, *, initial_state_from_input: bool = False
    ) -> None:
        self.cell = as_block(cell, "RNN.cell")
        if initial_state is not None and initial_state_from_input:
            fix = "drop one of them"
            raise BlockValueError("RNN", "initial_state or initial_state_from_input", "both", fix)
        self.initial_state = None if initial_state is None else as_block(initial_state, "RNN.initial_state")
        self.initial_state_from_input = initial_state_from_input

    def build(self, builder: Builder, value: Value) -> Value:
        """Build a loop that appends outputs to a list and keeps the state in variables; return both."""
        first: Value = None
        if self.initial_state_from_input:
            if not isinstance(value, tuple) or len(value) != 2:
                fix = "give it both, or drop initial_state_from_input"
                expected = "a pair (sequence, state)"
                raise BlockTypeError(builder.where(self), expected, str(type_of(value)), fix)
            value, first = value
        source = flow.expect_list(self, builder, value)
        if not self.initial_state_from_input:
            first = self._first_state(builder, flow.element_type(source))
        state = _begin(builder, as_object(first))
        outputs = builder.fresh("list")
        builder.assign(outputs, Listed(()))
        with flow.loop_over(builder, source, ".cell") as element:
            outcome = build(self.cell, builder, (element, flow.read(builder, state)))
            if not isinstance(outcome, tuple) or len(outcome) != 2:
                fix = "give both, even where they are the same"
                raise BlockTypeError(builder.path, "a pair (output, state)", str(type_of(outcome)), fix)
            builder.finish(outcome)  # both in one cell
            output_list = flow.append(builder, outcome[0], outputs)
            flow.assign(builder, state, outcome[1], UNCHANGED, f"a state of {state.type}, as the first is")
        return output_list, flow.read(builder, state)

    def _first_state(self, builder: Builder, element: Type) -> Value:
        """Return the first state: of the block for it, or zeros of the cell's state type."""
        if self.initial_state is not None:
            with builder.at(".initial_state"):
                return build(self.initial_state, builder, None)
        state_type = self._state_type(element)
        if state_type is None:
            fix = "pass initial_state=, for example Zeros(150)"
            raise BlockTypeError(builder.where(self), "a cell of known state", repr(self.cell), fix)
        return zeros(state_type, builder.where(self))

    def _state_type(self, element: Type) -> Type | None:
        """Return the type of the cell's state: from its `state_type`, or from its result's second item."""
        state_type_of = getattr(self.cell, "state_type", None)
        if state_type_of is not None:
            state_type: Type = state_type_of(element)
            return state_type
        result = self.cell.output_type
        return result.items[1] if isinstance(result, TupleType) and len(result) == 2 else None


class Reduce(Block[TupleType | SequenceType, Any]):
    """Combines neighbours pairwise, level by level, until one is left: a tree of depth ceil(log2 n).

    An odd last element goes up to the next level as it is.

    Args:
        combine: a block from a pair of elements to one of the same type.
        default: a block that reads nothing, or a tuple of such, for empty sequences; by default zeros of
            the elements' type.

    Raises:
        BlockTypeError: when the input is no finite sequence of tensors, or `combine` or `default`
            yields another type than the elements'.

    >>> product = fb.Map(fb.Scalar()) >> fb.Reduce(fb.Function(lambda a, b: a * b), default=np.float32(1))
    >>> [float(product.eval(x)) for x in ([2, 3, 4], [])]
    [24.0, 1.0]
    """

    def __init__(self, combine: object, default: object = None) -> None:
        self.combine = as_block(combine, "Reduce.combine")
        self.default = None if default is None else as_block(default, "Reduce.default")

    def build(self, builder: Builder, value: Value) -> Value:
        """Build a loop over levels, with one over pairs in it; return the last element, or the default."""
        source = flow.expect_sequence(self, builder, value)
        type_ = source.element
        wanted = f"{type_}, as the elements are"
        level, above = builder.fresh("level"), builder.fresh("above")
        items = flow.empty_list(level, type_)
        feed(source.wires, items.wires)
        result = flow.declare(builder, type_)
        builder.assign(level, source.expression)
        rounds = builder.apply(ROUNDS, Object(level))
        with flow.loop_over(builder, rounds, ""):
            builder.assign(above, Listed(()))
            pairs, pair = builder.apply(PAIRS, Object(level)), builder.fresh("pair")
            with builder.at(".combine"), builder.inside(loop=True) as combined:
                names = builder.fresh("left"), builder.fresh("right")
                builder.add(Assign(builder.blame(), names, pair))
                first_item, second_item = (builder.element(items, item) for item in names)
                outcome = build(self.combine, builder, (first_item, second_item))
                if type_of(outcome) != type_:
                    fix = "combine two elements into one of their kind"
                    raise BlockTypeError(builder.path, wanted, str(type_of(outcome)), fix)
                next_level = flow.append(builder, outcome, flow.empty_list(above, type_))
                assert isinstance(next_level, Sequence)
                feed(next_level.wires, items.wires)
            index = builder.fresh("i")
            builder.add(Loop(builder.blame(), index, pair, pairs.expression, tuple(combined)))
            builder.add(Apply(builder.blame(), level, WITH_ODD_ITEM, (above, level)))
        blame = builder.blame()
        with builder.inside() as filled:
            first = builder.item(Object(level), 0)
            flow.assign(builder, result, builder.element(items, first.expression), "")
        with builder.at(".default"), builder.inside() as none:
            empty = zeros(type_, builder.path) if self.default is None else build(self.default, builder, None)
            flow.assign(builder, result, empty, "give a default of the elements' type", wanted)
        builder.add(Branch(blame, Filled(level), (tuple(filled), tuple(none))))
        return flow.read(builder, result)


def _rounds(items: list[object]) -> range:
    """Return a range of as many numbers as halvings reduce the items to one."""
    return range(max(len(items) - 1, 0).bit_length())


def _pairs(items: list[object]) -> list[tuple[object, object]]:
    """Return neighbours as pairs; an odd last item has none."""
    return list(zip(items[::2], items[1::2], strict=False))


def _with_odd_item(above: list[object], items: list[object]) -> list[object]:
    """Return the next level: an odd last item goes up as it is."""
    return [*above, items[-1]] if len(items) % 2 else above


ROUNDS, PAIRS = Constant("rounds", _rounds), Constant("pairs", _pairs)
WITH_ODD_ITEM = Constant("with_rest", _with_odd_item)


class _Summary(Block[TupleType | SequenceType, TensorType]):
    """A tensor made of the tensors of a sequence or a tuple, elementwise."""

    of_two: Callable[..., Node]  # makes one of two tensors
    over: Callable[..., Node]  # makes one of a tensor along the axis of a sequence's elements

    def build(self, builder: Builder, value: Value) -> Node:
        """Return one tensor, made of a tuple's tensors or along the axis of a sequence's elements."""
        if isinstance(value, tuple) and value and all(isinstance(item, Node) for item in value):
            nodes = [item for item in value if isinstance(item, Node)]
            if len({node.type for node in nodes}) == 1 and all(node.axis.rank < 2 for node in nodes):
                return self.of_tensors(nodes)
        if isinstance(value, Node) and value.axis.rank > 1:
            return self.of_elements(value)
        sequence: Sequence = flow.expect_sequence(self, builder, value)
        elements = builder.elements(sequence)
        if not isinstance(elements, Node):
            fix = "select one of them, as in Map(GetItem(0))"
            actual = str(type_of(sequence))
            raise BlockTypeError(builder.where(self), "a sequence of single tensors", actual, fix)
        return self.of_elements(elements)

    def of_tensors(self, nodes: list[Node]) -> Node:
        return reduce(type(self).of_two, nodes)

    def of_elements(self, elements: Node) -> Node:
        return type(self).over(elements)


class Sum(_Summary):
    """Adds the tensors of a sequence; zeros if it is empty. Integers are added in int64, as by NumPy.

    Raises:
        BlockTypeError: when the input is no finite sequence of tensors, or they are bools.

    >>> [float((fb.Map(fb.Scalar()) >> fb.Sum()).eval(x)) for x in ([1, 2, 3], [])]
    [6.0, 0.0]
    """

    of_two, over = ops.add, ops.segment_sum

    def of_tensors(self, nodes: list[Node]) -> Node:
        return super().of_tensors([*map(self._number, nodes)])

    def of_elements(self, elements: Node) -> Node:
        return super().of_elements(self._number(elements))

    def _number(self, node: Node) -> Node:
        if node.type.dtype == "bool":  # whose sum would be a bool
            fix = "to count flags, read them with Scalar('int32')"
            raise GraphError(repr(self), "numbers", str(node.type), fix)
        return ops.cast(node, "int64") if node.type.dtype == "int32" else node


class Min(_Summary):
    """The elementwise minimum of the tensors of a sequence; zeros if it is empty.

    Raises:
        BlockTypeError: when the input is no finite sequence of tensors.

    >>> [float((fb.Map(fb.Scalar()) >> fb.Min()).eval(x)) for x in ([3, 2, 5], [])]
    [2.0, 0.0]
    """

    of_two, over = ops.minimum, ops.segment_min


class Max(_Summary):
    """The elementwise maximum of the tensors of a sequence; zeros if it is empty.

    Raises:
        BlockTypeError: when the input is no finite sequence of tensors.

    >>> [float((fb.Map(fb.Scalar()) >> fb.Max()).eval(x)) for x in ([3, 2, 5], [])]
    [5.0, 0.0]
    """

    of_two, over = ops.maximum, ops.segment_max


class Mean(_Summary):
    """The mean of the tensors of a sequence; zeros if it is empty.

    Raises:
        BlockTypeError: when the input is no finite sequence of float tensors.

    >>> [float((fb.Map(fb.Scalar()) >> fb.Mean()).eval(x)) for x in ([1, 2, 6], [])]
    [3.0, 0.0]
    """

    of_two, over = ops.add, ops.segment_mean

    def of_tensors(self, nodes: list[Node]) -> Node:
        return super().of_tensors(nodes) * (1.0 / len(nodes))
