"""Operands read side by side become one, and the cell computes the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.static import ops
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, input_node, reachable
from foldbatch.static.op import ragged
from foldbatch.static.packing import pack
from foldbatch.types import TensorType

V = TensorType((3,), "float64")


def _held(operands: list[Node], results: list[Node]) -> list[tuple[int, ...]]:
    """Pack, check that values stay the same, and return the old numbers of each new operand."""
    groups, new = pack(operands, results)
    rng = np.random.default_rng(0)
    values = [
        rng.normal(size=x.shape) if x.axis.rank < 2 else list(rng.normal(size=(2, *x.shape)))
        for x in operands
    ]
    packed = [
        values[held[0]] if len(held) == 1 else np.stack([values[i] for i in held]) for _, held in groups
    ]
    inputs = tuple(node for node, _ in groups)
    before = evaluate(Graph(tuple(operands), tuple(results)), values)
    after = evaluate(Graph(inputs, tuple(new)), packed)
    for a, b, x, y in zip(before, after, results, new, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (x.type, x.axis) == (y.type, y.axis)
    assert sorted(i for _, held in groups for i in held) == list(range(len(operands)))
    return [held for _, held in groups]


def test_children_joined_end_to_end_are_one_operand() -> None:
    """And their joining costs nothing any more: it is a view."""
    left, right = input_node(V), input_node(V)
    assert _held([left, right], [ops.tanh(ops.concat([left, right]))]) == [(0, 1)]
    groups, new = pack([left, right], [ops.concat([left, right])])
    assert groups[0][0].shape == (2, 3)
    assert [node.op.name for node in reachable(new)] == ["input", "reshape"]


def test_stacked_children_are_the_operand_itself() -> None:
    """A stack on a leading axis is how they lie in the arena."""
    left, right = input_node(V), input_node(V)
    groups, new = pack([left, right], [ops.stack([left, right])])
    assert new == [groups[0][0]]


def test_states_of_two_parts_are_two_operands() -> None:
    """h with h, c with c, in the order in which they are joined."""
    h1, c1, h2, c2 = (input_node(V) for _ in range(4))
    result = ops.sum(ops.stack([c1, c2]), 0) * ops.concat([h2, h1])[:3]
    assert _held([h1, c1, h2, c2], [result]) == [(1, 3), (2, 0)]


def test_a_packed_operand_can_be_read_alone_as_well() -> None:
    """It is a row of the pack then."""
    left, right = input_node(V), input_node(V)
    assert _held([left, right], [ops.concat([left, right]), left + 1.0, right]) == [(0, 1)]


def test_joining_on_another_axis_packs_nothing() -> None:
    """The parts would not lie one after the other."""
    a, b = input_node(TensorType((2, 3), "float64")), input_node(TensorType((2, 3), "float64"))
    assert _held([a, b], [ops.concat([a, b], 1)]) == [(0,), (1,)]
    assert _held([a, b], [ops.stack([a, b], 1)]) == [(0,), (1,)]
    assert _held([a, b], [ops.concat([a, b], 0)]) == [(0, 1)]


def test_what_is_not_alike_is_not_packed() -> None:
    """Different types, one operand twice, one alone, computed parts, elements of sequences."""
    a, b, c = input_node(V), input_node(TensorType((2,), "float64")), input_node(V)
    e = input_node(V, ragged())
    assert _held([a, b], [ops.concat([a, b])]) == [(0,), (1,)]
    assert _held([a, c], [ops.concat([a, c, a])]) == [(0,), (1,)]
    assert _held([a, c], [ops.stack([a]), c]) == [(0,), (1,)]
    assert _held([a, c], [ops.concat([a, c + 1.0])]) == [(0,), (1,)]
    assert _held([a, e], [ops.segment_sum(ops.concat([e, e])), a]) == [(0,), (1,)]


def test_an_operand_belongs_to_one_pack() -> None:
    """The first that wants it; the second joins what it reads as before."""
    a, b, c = (input_node(V) for _ in range(3))
    first, second = ops.concat([a, b]), ops.concat([b, c])
    assert _held([a, b, c], [first, second]) == [(0, 1), (2,)]


def test_scalars_are_packed_into_a_vector() -> None:
    """A stack of scalars has an axis over them, like any other."""
    a, b = input_node(TensorType((), "float64")), input_node(TensorType((), "float64"))
    assert _held([a, b], [ops.stack([a, b])]) == [(0, 1)]


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), max_size=5),
    st.sampled_from(["concat", "stack"]),
)
def test_any_joins_of_operands_mean_the_same_packed(joins: list[list[int]], how: str) -> None:
    """Whatever overlaps: values stay, and every operand is held once."""
    operands = [input_node(V) for _ in range(5)]
    join = ops.concat if how == "concat" else ops.stack
    results = [ops.tanh(join([operands[i] for i in members])) for members in joins]
    _held(operands, [*results, operands[2] * 2.0])
