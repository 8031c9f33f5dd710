"""Parts of places name the elements that NumPy's indexing names."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from foldbatch.static.op import CALL, UNBATCHED, ragged
from foldbatch.static.places import Place, aligned, backward, contiguous, section, without
from foldbatch.static.statements import Statement, axis_of

SLOT = np.arange(40.0)
PLACE = Place(0, CALL, 24, 3, (2, 3, 4), (12, 4, 1))
TURNED = Place(0, CALL, 24, 5, (4, 2), (1, 7))


def elements(place: Place) -> np.ndarray:
    """Return the elements of the first row."""
    return as_strided(SLOT[place.offset :], place.shape, [8 * stride for stride in place.strides])


@pytest.mark.parametrize(("axis", "start", "extent"), [(0, 1, 1), (1, 1, 2), (2, 0, 4), (2, 3, 0)])
def test_a_section_is_a_slice(axis: int, start: int, extent: int) -> None:
    index = [slice(None)] * 3
    index[axis] = slice(start, start + extent)
    np.testing.assert_array_equal(
        elements(section(PLACE, axis, start, extent)), elements(PLACE)[tuple(index)]
    )


@pytest.mark.parametrize(
    ("place", "axis", "at"), [(PLACE, 0, 1), (PLACE, 2, 3), (TURNED, 1, 1), (TURNED, 0, 0)]
)
def test_without_an_axis_is_an_index(place: Place, axis: int, at: int) -> None:
    np.testing.assert_array_equal(elements(without(place, axis, at)), elements(place).take(at, axis))


@pytest.mark.parametrize("axis", [0, 1])
def test_backward_is_from_the_last_to_the_first(axis: int) -> None:
    np.testing.assert_array_equal(
        [elements(section(backward(TURNED, axis), axis, i, 1)) for i in range(TURNED.shape[axis])],
        [elements(section(TURNED, axis, TURNED.shape[axis] - 1 - i, 1)) for i in range(TURNED.shape[axis])],
    )


@pytest.mark.parametrize("shape", [(4, 2), (3, 4, 2), (3, 1, 2, 4, 2)])
def test_an_aligned_place_is_broadcast(shape: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(elements(aligned(TURNED, shape)), np.broadcast_to(elements(TURNED), shape))
    one = section(TURNED, 1, 1, 1)
    np.testing.assert_array_equal(elements(aligned(one, shape)), np.broadcast_to(elements(one), shape))


def test_contiguous_strides_are_those_of_an_array() -> None:
    for shape in ((), (3,), (2, 3, 4), (2, 1)):
        array = np.zeros(shape)
        assert contiguous(shape) == tuple(stride // 8 for stride in array.strides)


def test_a_statement_runs_along_the_widest_axis_of_its_places() -> None:
    """Be it that its result has none."""
    m = ragged()
    element = Place(1, m, 1, 0, (), ())
    statement = Statement("sum_batch", UNBATCHED, (element,), Place(0, UNBATCHED, 0, 0, (), ()))
    assert statement.result.axis is UNBATCHED
    assert axis_of(statement, statement.reads) is m
    assert axis_of(statement, [PLACE]) is CALL
