"""Map, Zip, NGrams and Length, over everything that is a sequence, in sequences of sequences and of tuples."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.values import Repeated, type_of
from foldbatch.types import OBJECT, VOID, BroadcastType, TensorType
from tests.blocks.results import yields

ONE = fb.Scalar()
TWICE = fb.Function(lambda x: x * 2)
TOTAL = fb.Function(ops.segment_sum)
NUMBERS = fb.Map(ONE)


def numbers(value):
    """A result with arrays as floats or lists of them."""
    if isinstance(value, tuple | list):
        return type(value)(map(numbers, value))
    return value.tolist() if hasattr(value, "dtype") else value


BLOCK_APPLIED = [
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
]


def test_a_block_is_applied_to_every_element():
    for block, example, right in BLOCK_APPLIED:
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


def test_a_broadcast_is_mapped_once():
    builder = Builder()
    with builder.define(builder.declare("f", "f", OBJECT, VOID), "f") as argument:
        tensor = ONE.build(builder, argument)
        mapped = fb.Map(TWICE).build(builder, Repeated(tensor))
    assert type_of(mapped) == BroadcastType(TensorType(()))


# -- sequences of sequences


def test_zip_is_as_long_as_the_shortest():
    three = fb.Record((NUMBERS, fb.Map(fb.Scalar("int32")), fb.Identity())) >> fb.Zip()
    yields(
        three,
        (([1, 2], [3], "abc"), [(1.0, 3, "a")]),
        (([1, 2], [3, 4, 5], "ab"), [(1.0, 3, "a"), (2.0, 4, "b")]),
        (([], [3], "a"), []),
        (([1], [3], ""), []),
    )
    yields(fb.Zip(), ((["ab", "cd", "ef"]), [("a", "c", "e"), ("b", "d", "f")]), (([[1], []]), []))
    yields(fb.AllOf(NUMBERS) >> fb.Zip(), ([1, 2], [(1.0,), (2.0,)]))


def test_zip_keeps_the_structure_of_elements():
    pairs = fb.Map((ONE, fb.Void(), fb.AllOf(fb.Map(ONE))))
    block = fb.Record((pairs, fb.Map(fb.Void()), NUMBERS)) >> fb.Zip()
    first = [(1, 0, [2, 3]), (4, 0, [])]
    yields(
        block,
        ((first, "ab", [5, 6]), [((1.0, None, ([2.0, 3.0],)), None, 5.0), ((4.0, None, ([],)), None, 6.0)]),
    )


def test_a_broadcast_is_zipped_with_as_many_as_there_are():
    scaled = fb.Record((NUMBERS, ONE >> fb.Broadcast())) >> fb.ZipWith(fb.Function(lambda x, y: x * y))
    yields(scaled, (([1, 2, 3], 2), [2.0, 4.0, 6.0]), (([], 2), []))
    tagged = fb.Record((fb.Broadcast(), NUMBERS)) >> fb.Zip()
    yields(tagged, (("x", [1, 2]), [("x", 1.0), ("x", 2.0)]))
    both = fb.Record((ONE, ONE)) >> fb.Broadcast()
    yields(fb.Record((both, NUMBERS)) >> fb.Zip(), (([1, 2], [3]), [((1.0, 2.0), 3.0)]))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_ngrams_are_all_neighbours_and_none_where_there_are_fewer(n):
    def neighbours(xs):
        return [tuple(xs[i : i + n]) for i in range(len(xs) - n + 1)]

    lists = [list(map(float, range(length))) for length in range(6)]
    yields(NUMBERS >> fb.NGrams(n), *((xs, neighbours(xs)) for xs in lists))
    yields(fb.NGrams(n), *((xs, neighbours(xs)) for xs in ["", "a", "ab", "abcdef"]))
    pairs = fb.Map((ONE, fb.Void(), fb.Identity())) >> fb.NGrams(n)
    given = [(k, 0, str(k)) for k in range(4)]
    yields(pairs, (given, neighbours([(float(k), None, text) for k, _, text in given])))
    yields(fb.Record((ONE,) * 3) >> fb.NGrams(n), ([0, 1, 2], neighbours([0.0, 1.0, 2.0])))


def test_ngrams_of_an_iterator_are_its_neighbours():
    assert fb.NGrams(2).eval(iter("abc")) == [("a", "b"), ("b", "c")]


def test_length_counts_what_python_counts():
    both = fb.AllOf(fb.Length(), NUMBERS >> fb.Length("int32"))
    yields(both, ([], (0.0, 0)), ([5], (1.0, 1)), ([5, 6, 7], (3.0, 3)))
    yields(fb.Length("int64"), ({"a": 1, "b": 2}, 2), ("abc", 3))
    yields(fb.Record((ONE, fb.Void())) >> fb.Length(), ([1, 2], 2.0))
    yields(
        fb.AllOf(fb.Map(fb.Void()) >> fb.Length(), fb.Map((ONE, ONE)) >> fb.Length()), ([(1, 2)], (1.0, 1.0))
    )


def test_sequences_are_wiring_and_cost_no_level_beyond_their_blocks():
    apart = fb.AllOf(NUMBERS, NUMBERS) >> fb.Zip()
    for block in (
        NUMBERS,
        apart,
        NUMBERS >> fb.NGrams(2),
        fb.Length(),
        fb.AllOf(NUMBERS, np.float32(1) >> fb.Broadcast()) >> fb.Zip(),
    ):
        assert block.max_depth([1, 2, 3]) == 0
    assert fb.Map(ONE >> TWICE).max_depth(range(9)) == 1
    assert (NUMBERS >> fb.Map(TWICE) >> fb.Map(TWICE)).max_depth(range(9)) == 2
    assert (apart >> fb.Map(fb.Function(ops.add))).max_depth(range(9)) == 1
