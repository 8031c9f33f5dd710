"""Rows on their way between kernels and buffers."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.numpy.moves import add_rows, check_range, located, spread, sum_copies
from foldbatch.engines.ranges import OutOfRangeError

ARENA = np.arange(12.0).reshape(6, 2)
INDEX = np.array([9, 5, 0, 3, 3])


def _fields(first: int, index: int, width: int, spare: int = -1) -> list[int]:
    return [0, first, index, width, -1, 0, spare]


def test_rows_that_follow_each_other_are_a_part_of_the_arena():
    """Several side by side are one row of the kernel; what is left over is no row."""
    rows, at, spare = located(_fields(1, -1, 1), INDEX, [ARENA], (2,))
    assert at is None
    assert rows.tolist() == ARENA[1:].tolist()
    assert spare.shape == (0, 2)
    rows, at, _ = located(_fields(1, -1, 2), INDEX, [ARENA], (2, 2))
    assert at is None
    assert rows.tolist() == ARENA[1:5].reshape(2, 2, 2).tolist()
    assert np.may_share_memory(rows, ARENA)


def test_other_rows_are_told_by_an_index_array():
    """With memory for copies, of the shape of the kernel's rows or of the arena's."""
    rows, at, spare = located(_fields(-1, 1, 1, 1), INDEX, [ARENA, np.zeros((4, 2))], (2,))
    assert rows is ARENA
    assert at.tolist() == [5, 0, 3, 3]
    assert spare.shape == (4, 2)
    for copies in (np.zeros((2, 2, 2)), np.zeros((4, 2))):
        _, at, spare = located(_fields(-1, 1, 2, 1), INDEX, [ARENA, copies], (2, 2))
        assert at.tolist() == [[5, 0], [3, 3]]
        assert spare.shape == (2, 2, 2)


def test_the_results_of_shared_calls_go_to_each_of_their_calls():
    arena = np.zeros((5, 2))
    spread(np.array([[1.0, 2], [3, 4]]), arena, np.array([7, 4, 0, 2]), np.array([1, 3, 4]))
    assert arena.tolist() == [[1, 2], [0, 0], [3, 4], [0, 0], [1, 2]]


def test_the_cotangents_of_shared_calls_are_summed():
    """A call that nobody stands for has none."""
    out = np.full((3, 2), np.nan)
    assert sum_copies(ARENA, np.array([5, 1, 2, 1]), np.array([1, 3, 3, 4]), out) is out
    assert out.tolist() == [[6, 8], [0, 0], [2, 3]]


@pytest.mark.parametrize("rows", [[], [4], [0, 1, 3], [3, 1], [2, 2], [4, 0, 4, 4, 0]])
def test_values_are_added_to_rows_that_may_repeat(rows: list[int]):
    """To each row the sum of its values."""
    rng = np.random.default_rng(0)
    values, arena = rng.normal(size=(len(rows), 3)), rng.normal(size=(5, 3))
    expected = arena.copy()
    for row in set(rows):
        expected[row] += sum(value for at, value in zip(rows, values, strict=True) if at == row)
    add_rows(values, arena, np.array(rows, np.int64))
    np.testing.assert_allclose(arena, expected, rtol=1e-14)


def test_values_side_by_side_are_added_to_rows_of_their_own():
    """Even if they lie in a buffer with gaps."""
    arena, values = np.ones((4, 2)), np.arange(24.0).reshape(2, 2, 6)[:, :, 1:3]
    add_rows(values, arena, np.array([[3, 1], [3, 0]]))
    assert arena.tolist() == [[20, 21], [8, 9], [1, 1], [15, 17]]


@pytest.mark.parametrize(
    ("ids", "owner", "rank", "id"),
    [
        ([0, 1, 3, -1], None, 12, 3),
        ([0, -1, 9], None, 11, -1),
        ([[0, 1], [2, 3]], None, 11, 3),
        ([0, 0, 3], [0, 2, 4], 14, 3),
    ],
)
def test_an_id_out_of_range_is_reported_with_its_call(ids, owner, rank: int, id: int):
    """Negative ids are out of range too: NumPy would count them from the end."""
    with pytest.raises(OutOfRangeError) as error:
        check_range(np.array(ids), 3, 10, None if owner is None else np.array(owner))
    assert (error.value.rank, error.value.id, error.value.size, error.value.launch) == (rank, id, 3, -1)


def test_ids_in_range_pass():
    """None at all included."""
    check_range(np.array([0, 2]), 3, 0)
    check_range(np.zeros(0, int), 0, 0)
