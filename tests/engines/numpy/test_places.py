"""Places as expressions: the elements they name, and the strides they have."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from foldbatch.engines.numpy.places import expression, view
from foldbatch.static.op import CALL, UNBATCHED, Axis
from foldbatch.static.places import Place
from foldbatch.static.statements import Binding, Slot
from foldbatch.types import TensorType

# the slot's shape, then the place's shape, strides and offset, and the expression
PLACES = [
    ((), (), (), 0, "s0"),
    ((4,), (4,), (1,), 0, "s0"),
    ((2, 3), (2, 3), (3, 1), 0, "s0"),
    ((6,), (2, 3), (3, 1), 0, "s0.reshape((n, 2, 3))"),
    ((1, 1), (), (), 0, "s0.reshape((n,))"),
    ((6,), (2,), (1,), 3, "s0[:, 3:5]"),
    ((6,), (2,), (1,), 0, "s0[:, 0:2]"),
    ((2, 6), (2, 3), (6, 1), 2, "s0[:, :, 2:5]"),
    ((4, 3), (2, 3), (3, 1), 6, "s0[:, 2:4, :]"),
    ((2, 5), (3,), (1,), 7, "view(s0, (n, 3), (10, 1), 7)"),
    ((2, 3), (3, 2), (1, 3), 0, "view(s0, (n, 3, 2), (6, 1, 3), 0)"),
    ((3,), (2, 3), (0, 1), 0, "view(s0, (n, 2, 3), (3, 0, 1), 0)"),
    ((8,), (2, 2), (2, 1), 4, "view(s0, (n, 2, 2), (8, 2, 1), 4)"),
    ((6,), (3,), (2,), 1, "view(s0, (n, 3), (6, 2), 1)"),
]


def _evaluated(text: str, array: np.ndarray, rows: int) -> np.ndarray:
    return eval(text, {"view": view, "s0": array, "n": rows})


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize(("whole", "shape", "strides", "offset", "text"), PLACES)
def test_an_expression_has_the_elements_of_its_place(whole, shape, strides, offset, text, rows):
    """And, where there are any, lies in the memory of the slot."""
    slot, size = Slot(Binding("scratch", 0), TensorType(whole), CALL), math.prod(whole)
    place = Place(0, CALL, size, offset, shape, strides)
    assert expression(place, slot, "s0", "n") == text
    array = np.arange(rows * size, dtype="float32").reshape(rows, *whole)
    seen = _evaluated(text, array, rows)
    expected = (
        np.empty((rows, *shape)) if rows == 0 else _strided(array, (size, *strides), (rows, *shape), offset)
    )
    np.testing.assert_array_equal(seen, expected)
    assert seen.shape == (rows, *shape)
    if rows:
        assert np.may_share_memory(seen, array)
        seen[...] = -1
        assert (array == -1).any()


def _strided(array, strides, shape, offset):
    flat = array.reshape(-1)[offset:]
    return as_strided(flat, shape, [stride * array.itemsize for stride in strides])


@pytest.mark.parametrize(
    ("axis", "place", "text"),
    [
        (UNBATCHED, Place(0, UNBATCHED, 0, 0, (2, 3), (3, 1)), "p0"),
        (UNBATCHED, Place(0, UNBATCHED, 0, 3, (1, 3), (3, 1)), "p0[1:2, :]"),
        (UNBATCHED, Place(0, UNBATCHED, 0, 0, (6,), (1,)), "p0.reshape((6,))"),
        (UNBATCHED, Place(0, CALL, 0, 0, (2, 3), (3, 1)), "view(p0, (n, 2, 3), (0, 3, 1), 0)"),
        (UNBATCHED, Place(0, CALL, 0, 1, (), ()), "view(p0, (n,), (0,), 1)"),
    ],
)
def test_what_is_the_same_for_all_rows_may_stand_for_each(axis: Axis, place: Place, text: str):
    """One row serves all where the place has a batch axis and its slot has none."""
    assert expression(place, Slot(Binding("parameter", None), TensorType((2, 3)), axis), "p0", "n") == text


def test_a_view_reads_data_that_is_one_row_broadcast():
    """Nobody may write to it, and its rows lie at no distance."""
    rows = np.broadcast_to(np.arange(4.0), (3, 4))
    assert view(rows, (3, 2), (4, 2), 1).tolist() == [[1, 3]] * 3


def test_a_view_of_what_may_not_be_written_may_not_either():
    array = np.arange(4.0)
    array.setflags(write=False)
    assert not view(array, (2,), (2,), 0).flags.writeable


@pytest.mark.parametrize("shape", [(0, 2), (3, 0), (0,)])
def test_a_view_without_elements_may_begin_beyond_the_end(shape):
    assert view(np.zeros((0, 4)), shape, (4, 1)[: len(shape)], 8).shape == shape
    assert view(np.zeros((3, 4)), (3, 0), (4, 1), 12).shape == (3, 0)
