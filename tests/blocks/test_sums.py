"""Sums, means, minima and maxima of any number of tensors: in one call, and zeros of nothing."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError
from tests.blocks.results import yields

ONE = fb.Scalar()
NUMBERS = fb.Map(ONE)
SUMS = fb.AllOf(fb.Sum(), fb.Min(), fb.Max(), fb.Mean())
CASES = [
    ([], (0.0, 0.0, 0.0, 0.0)),
    ([-3], (-3.0, -3.0, -3.0, -3.0)),
    ([2, 5, 2], (9.0, 2.0, 5.0, 3.0)),
    ([-1, -4, 2, 1], (-2.0, -4.0, 2.0, -0.5)),
]


@pytest.mark.parametrize(("example", "right"), CASES[1:])
def test_a_tuple_is_summed_up_as_a_sequence_is(example, right):
    yields(fb.Record((ONE,) * len(example)) >> SUMS, (example, right))


def test_ints_are_summed_up_as_ints():
    for dtype in ("int32", "int64"):
        whole = fb.Map(fb.Scalar(dtype)) >> fb.AllOf(fb.Sum(), fb.Min(), fb.Max())
        assert [x.dtype.name for x in whole.eval([3, 4])] == [dtype] * 3
        yields(whole, ([3, 4, 2], (9, 2, 4)), ([], (0, 0, 0)))


def test_tuples_of_sequences_elements_and_of_several_types_are_refused():
    for members in (fb.Map(fb.AllOf(ONE, ONE)), fb.AllOf(ONE, fb.Vector(2))):
        with pytest.raises(BlockTypeError):
            members >> fb.Sum()
    with pytest.raises(BlockTypeError, match="found int32"):
        fb.Map(fb.Scalar("int32")) >> fb.Mean()
    with pytest.raises(BlockTypeError, match="int32"):
        fb.AllOf(fb.Scalar("int32"), fb.Scalar("int32")) >> fb.Mean()


def test_flags_are_counted_as_numbers_and_not_added_up_as_bools():
    yields(fb.Map(fb.Scalar("int32")) >> fb.Sum(), ([True, False, True], 2), ([], 0))
    for flags in (fb.Map(fb.Scalar("bool")), fb.AllOf(fb.Scalar("bool"), fb.Scalar("bool"))):
        with pytest.raises(BlockTypeError, match=r"expected numbers, found bool; .* Scalar\('int32'\)"):
            flags >> fb.Sum()


def test_a_sum_is_one_level_whatever_the_length_and_nothing_for_what_has_none():
    for block in (fb.Sum(), fb.Min(), fb.Max(), fb.Mean()):
        assert [(NUMBERS >> block).max_depth(range(n)) for n in (0, 1, 100)] == [1, 1, 1]
