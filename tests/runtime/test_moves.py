"""Rows are moved alike with and without compiled loops."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.moves import moves_for, spread, sum_copies, zero
from foldbatch.scheduler.schedule import CellTable
from foldbatch.static.backends import BACKENDS

needs_numba = [
    pytest.mark.numba,
    pytest.mark.skipif("numba" not in BACKENDS, reason="numba is not installed"),
]
BACKEND = pytest.mark.parametrize("backend", ["numpy", pytest.param("numba", marks=needs_numba)])
NONE = np.zeros(0, np.int64)


@BACKEND
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_shared_rows_are_copied_and_their_cotangents_summed(backend: str, dtype: str) -> None:
    moves = BACKENDS[backend].called_by(moves_for([]))
    rows, copies = np.array([5, 0, 3, 2]), np.array([0, 2, 3, 4])
    table = CellTable(np.arange(3), (), (rows,), (), NONE, copies)
    values, arena = np.arange(12).astype(dtype).reshape(3, 2, 2), np.zeros((6, 2, 2), dtype)
    spread(values[1:], arena, table, 0, (1, 3), moves)
    np.testing.assert_array_equal(arena[[3, 2]], values[1:])
    assert not arena[[0, 1, 4, 5]].any()
    spread(values[:1], arena, table, 0, (0, 1), moves)
    np.testing.assert_array_equal(arena[[5, 0]], values[[0, 0]])
    np.testing.assert_array_equal(sum_copies(arena, rows[:3], copies[:3], moves), [2 * values[0], values[1]])


def test_rows_that_are_not_shared_are_written_once() -> None:
    table = CellTable(np.arange(2), (), (np.array([2, 0]),), (), NONE)
    arena = np.zeros((3, 1))
    spread(np.array([[1.0], [2.0]]), arena, table, 0, (0, 2), {})
    assert arena.tolist() == [[2], [0], [1]]


@pytest.mark.parametrize("rows", [[], [1], [1, 2, 3], [0, 2]])
def test_rows_are_set_to_zero(rows: list[int]) -> None:
    array = np.ones((4, 2))
    zero(array, np.array(rows, np.int64))
    assert np.flatnonzero(array[:, 0] == 0).tolist() == rows
