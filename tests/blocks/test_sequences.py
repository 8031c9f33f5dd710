"""Map, over everything that is a sequence, in sequences of sequences and of tuples."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.values import Broadcast, type_of
from foldbatch.errors import BlockTypeError
from foldbatch.types import OBJECT, VOID, BroadcastType, TensorType

ONE = fb.Scalar()
TWICE = fb.Function(lambda x: x * 2)
TOTAL = fb.Function(ops.segment_sum)


def numbers(value):
    """A result with arrays as floats or lists of them."""
    if isinstance(value, tuple | list):
        return type(value)(map(numbers, value))
    return value.tolist() if hasattr(value, "dtype") else value


@pytest.mark.parametrize(
    ("block", "example", "right"),
    [
        (fb.Map(ONE), [1, 2], [1.0, 2.0]),
        (fb.Map(ONE), [], []),
        (fb.Map(ONE), (1, 2), [1.0, 2.0]),
        (fb.Map(ONE), range(3), [0.0, 1.0, 2.0]),
        (fb.Map(ONE), np.arange(2), [0.0, 1.0]),
        (fb.Map(ONE), {1: "a", 2: "b"}, [1.0, 2.0]),
        (fb.Map(fb.Identity()), [1, [2]], [1, [2]]),
        (fb.Map(fb.InputTransform(len)) >> fb.Map(ONE), ["a", "bc"], [1.0, 2.0]),
        (fb.Map(fb.InputTransform(len)) >> fb.InputTransform(sum), ["a", "bc"], 3),
        (fb.Map(ONE) >> fb.Map(TWICE) >> fb.Map(TWICE), [1, 2], [4.0, 8.0]),
        (fb.Map(fb.Map(ONE)), [[1, 2], [], [3]], [[1.0, 2.0], [], [3.0]]),
        (fb.Map(fb.Map(ONE)) >> fb.Map(fb.Map(TWICE)), [[1, 2], [], [3]], [[2.0, 4.0], [], [6.0]]),
        (fb.Map(fb.Map(ONE)) >> fb.Map(TOTAL), [[1, 2], [], [3]], [3.0, 0.0, 3.0]),
        (fb.Map(fb.Map(ONE)) >> fb.Map(TOTAL) >> TOTAL, [[1, 2], [], [3]], 6.0),
        (fb.Map({"a": ONE, "b": fb.Identity()}), [{"a": 1, "b": "x"}], [(1.0, "x")]),
        (fb.Map({"a": ONE, "b": ONE}) >> fb.Map(fb.GetItem(1)), [{"a": 1, "b": 2}], [2.0]),
        (fb.Map({"a": ONE, "b": ONE}) >> fb.Map(fb.Function(lambda a, b: a - b)), [{"a": 1, "b": 2}], [-1.0]),
        (fb.Map((ONE, fb.Map((ONE, ONE)))), [[1, [[2, 3]]]], [(1.0, [(2.0, 3.0)])]),
        (
            fb.Map((ONE, fb.Map((ONE, ONE)))) >> fb.Map(fb.GetItem(1) >> fb.Map(fb.GetItem(0))),
            [[1, [[2, 3]]]],
            [[2.0]],
        ),
        (fb.Record((ONE, ONE)) >> fb.Map(TWICE), [1, 2], [2.0, 4.0]),
        (fb.Record((fb.Identity(), fb.Identity())) >> fb.Map(ONE), [1, 2], [1.0, 2.0]),
        (fb.Record((fb.Identity(), fb.Identity())) >> fb.Map(fb.Identity()), [1, 2], [1, 2]),
        (fb.Record(((ONE, ONE), (ONE, ONE))) >> fb.Map(fb.GetItem(1)), [[1, 2], [3, 4]], [2.0, 4.0]),
        (fb.Record((fb.Map(ONE), fb.Map(ONE))) >> fb.Map(fb.Map(TWICE)), [[1], [2, 3]], [[2.0], [4.0, 6.0]]),
        (fb.Record((fb.Void(), fb.Void())) >> fb.Map(fb.FromTensor(1.0)), [1, 2], [1.0, 1.0]),
        (fb.Map(fb.Void()), [1, 2], [None, None]),
        (fb.Map(fb.Void()) >> fb.Map(fb.AllOf()), [1, 2], [None, None]),
        (fb.Map(fb.Void()) >> fb.GetItem(1), [1, 2], None),
        (fb.Map(fb.AllOf(fb.Identity())), [(1, 2), 3], [((1, 2),), (3,)]),
        (
            fb.Map(fb.AllOf(fb.Identity())) >> fb.Map(fb.GetItem(0) >> fb.InputTransform(str)),
            [(1, 2)],
            ["(1, 2)"],
        ),
        (fb.Map(fb.AllOf(fb.Void(), ONE)), [1], [(None, 1.0)]),
        (fb.Map(fb.FromTensor(2.0)), "ab", [2.0, 2.0]),
        (fb.Map(fb.OneOf(lambda x: x > 0, (ONE, ONE >> TWICE))), [1, -1], [2.0, -1.0]),
    ],
)
def test_a_block_is_applied_to_every_element(block, example, right):
    assert numbers(block.eval(example)) == right
    assert numbers(fb.compile(block, backend="reference").run([example])[0]) == right
    program = fb.compile(block)
    assert numbers(list(program.run([example, example]))) == [right, right]


def test_a_function_of_a_sequence_gets_its_elements_along_a_ragged_axis():
    pairs = fb.Map({"a": fb.Vector(2), "b": ONE, "none": fb.Void()})
    block = pairs >> fb.Function(lambda a, b, none: ops.segment_sum(a * b) if none is None else None)
    rows = [{"a": [1, 2], "b": 3, "none": 0}, {"a": [4, 5], "b": 1, "none": 0}]
    assert block.eval(rows).tolist() == [7.0, 11.0]
    assert block.eval([]).tolist() == [0.0, 0.0]


def test_who_reads_a_sequence_twice_finds_the_same_axis():
    both = (
        fb.Map(ONE)
        >> fb.AllOf(fb.Identity(), fb.Identity())
        >> fb.Function(lambda a, b: ops.segment_sum(a * b))
    )
    assert float(both.eval([1, 2, 3])) == 14.0
    apart = fb.Map(ONE) >> fb.AllOf(fb.Function(ops.tanh), fb.Function(lambda x: x + 1))
    joined = apart >> fb.Function(lambda a, b: ops.segment_sum(a * b))
    np.testing.assert_allclose(joined.eval([1, 2]), np.tanh(1) * 2 + np.tanh(2) * 3, rtol=1e-6)


def test_two_sequences_are_two_axes():
    block = fb.Record((fb.Map(ONE), fb.Map(ONE))) >> fb.Function(
        lambda a, b: ops.segment_sum(a) * ops.segment_sum(b)
    )
    assert float(block.eval([[1, 2], [3]])) == 9.0
    with pytest.raises(BlockTypeError, match="elements of one sequence"):
        fb.compile(fb.Record((fb.Map(ONE), fb.Map(ONE))) >> fb.Function(lambda a, b: ops.segment_sum(a * b)))


def test_a_call_is_repeated_for_every_element_that_it_meets():
    block = fb.Record((fb.Vector(2), fb.Map(fb.Vector(2)))) >> fb.Function(
        lambda x, xs: ops.segment_sum(x * xs)
    )
    program = fb.compile(block)
    results = program.run([[[1, 2], [[1, 1], [2, 2]]], [[3, 4], []], [[5, 6], [[1, 0]]]])
    assert [x.tolist() for x in results] == [[3.0, 6.0], [0.0, 0.0], [5.0, 0.0]]


def test_a_broadcast_is_mapped_once():
    builder = Builder()
    with builder.define(builder.declare("f", "f", OBJECT, VOID), "f") as argument:
        tensor = ONE.build(builder, argument)
        mapped = fb.Map(TWICE).build(builder, Broadcast(tensor))
    assert type_of(mapped) == BroadcastType(TensorType(()))


def test_map_prints_as_it_is_written():
    assert repr(fb.Map((ONE, ONE))) == "Map(Record((Scalar('float32'), Scalar('float32'))))"
