"""The functions that known products need besides products: against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.launch import FIELDS, FIRST, STORES
from tests.engines.llvm.walking import run_native

pytestmark = pytest.mark.llvm


@pytest.fixture(scope="module")
def known_code():
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    from foldbatch.engines.llvm import known_code  # noqa: PLC0415 - it needs llvmlite

    return known_code


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_rows_of_a_table_are_added_up(known_code, kind: str) -> None:
    """Two, one or none of them; what was there does not matter."""
    dtype = {"f4": "float32", "f8": "float64"}[kind]
    table = np.random.default_rng(0).normal(size=(4, 7)).astype(dtype)
    place, out = np.array([3, 0, -1, 2, 1, -1, -1, -1]), np.full((4, 7), np.nan, dtype)
    run_native(known_code.ADD_UP.format(k=kind), 4, [table, place, out], [2, 7])
    np.testing.assert_array_equal(out, [table[3] + table[0], table[2], table[1], 0 * table[0]])


@pytest.mark.parametrize("shape", [(1, 5), (16, 3), (37, 20), (0, 4)])
def test_a_matrix_is_transposed(known_code, shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(0).normal(size=shape)
    out = np.full(shape[::-1], np.nan)
    run_native(known_code.TRANSPOSE.format(k="f8"), 1, [matrix, out], list(shape))
    np.testing.assert_array_equal(out, matrix.T)


@pytest.mark.parametrize("stores", [False, True])
def test_cotangents_of_known_rows_are_cleared_where_others_are_stored(known_code, stores: bool) -> None:
    """Calls read two rows each, from the arena's row 1 on; where cotangents are added nothing is cleared."""
    place, arena = np.array([-1, 0, 1, -1]), np.ones((6, 3))
    where, fields = np.zeros(FIELDS, np.int64), np.zeros(FIELDS, np.int64)
    where[FIRST], fields[STORES] = 1, stores
    run_native(known_code.CLEAR.format(k="f8"), 2, [place, arena, where, fields], [2, 3])
    assert arena.all(axis=1).tolist() == [True, True, not stores, not stores, True, True]


def test_products_of_rows_are_of_floats(known_code) -> None:
    assert known_code.can_multiply("float32") == known_code.can_multiply("float64")
    assert not known_code.can_multiply("int64")
