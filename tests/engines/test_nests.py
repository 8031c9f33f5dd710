"""Parts visit just the elements that the shape has, in as many loops as a function has."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.engines.nests import Stretch, Strides, by_rows, merged, parts

SHAPES = st.lists(st.integers(1, 3), max_size=5).map(tuple)


def addresses(part: Stretch, place: int) -> list[int]:
    turns = product(*(range(extent) for extent in part.extents))
    return [part.offsets[place] + sum(np.multiply(turn, part.strides[place])) for turn in turns]


@given(SHAPES, st.integers(1, 4), st.randoms())
def test_all_elements_are_visited_in_order(shape, loops, random) -> None:
    order = list(range(len(shape)))
    random.shuffle(order)
    whole = np.arange(int(np.prod(shape))).reshape(shape)
    turned = np.ascontiguousarray(whole.transpose(order))  # the other place has its axes in another order
    back = turned.transpose(np.argsort(order)) if shape else turned
    places = [Strides(0, tuple(s // 8 for s in array.strides)) for array in (whole, back)]
    cut = list(parts(merged(shape, places), loops, 2))
    assert all(len(part.extents) == loops for part in cut)
    assert [at for part in cut for at in addresses(part, 0)] == list(range(whole.size))
    assert [turned.reshape(-1)[at] for part in cut for at in addresses(part, 1)] == list(range(whole.size))


def test_axes_without_gaps_are_one() -> None:
    assert merged((2, 3, 4), [Strides(0, (12, 4, 1)), Strides(0, (24, 8, 2))]) == [(24, (1, 2))]
    assert merged((2, 3), [Strides(0, (3, 1)), Strides(0, (0, 1))]) == [(2, (3, 0)), (3, (1, 1))]
    assert merged((1, 1), [Strides(0, (7, 9))]) == []


def test_rows_join_the_only_axis_if_they_follow_each_other() -> None:
    assert by_rows([(6, (1, 2))], (6, 12))
    assert not by_rows([(6, (1, 2))], (6, 0))
    assert not by_rows([(2, (3,)), (3, (2,))], (6,))
    assert by_rows([], (5, 0))  # a number a row may lie anywhere


def test_an_empty_axis_is_a_part_without_elements() -> None:
    (part,) = parts(merged((0, 3), [Strides(3, (3, 1))]), 3, 1)
    assert addresses(part, 0) == []
