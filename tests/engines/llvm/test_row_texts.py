"""Functions of rows: ids, sequences, random numbers and checks."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.llvm.row_texts import (
    CHECK,
    CHECK_ELEMENTS,
    GATHER,
    RANDOM,
    SUM_ROWS,
)
from foldbatch.static.ops.random import GAMMA, WORD, random_bits
from tests.engines.llvm.walking import run_native

pytestmark = pytest.mark.llvm
# ids and rows without axes of their own, three numbers a row
BY_IDS = [1, 1, 1, 3, 5, 1, 0, 0, 3, 0, 1, 3, 0, 0, 0, 1]


@pytest.fixture(autouse=True)
def _needs_llvm() -> None:
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")


def test_ids_out_of_range_read_no_other_memory() -> None:
    """NumPy's ``mode="clip"``: what checks ids may be another instruction."""
    table, out = np.arange(15.0).reshape(5, 3), np.zeros((4, 3))
    run_native(GATHER.format(i="i8", k="i8"), 4, [np.array([4, -1, 9, 0]), table, out], BY_IDS)
    np.testing.assert_array_equal(out, table[[4, 0, 4, 0]])


def test_rows_are_summed_by_id_in_order() -> None:
    ids, rows = (
        np.array([3, 1, 3, 3], "int32"),
        np.random.default_rng(0).normal(size=(4, 3)).astype("float32"),
    )
    table, right = np.zeros((5, 3), "float32"), np.zeros((5, 3), "float32")
    run_native(SUM_ROWS.format(i="i4", k="f4"), 4, [ids, table, rows], BY_IDS)
    for id_, row in zip(ids, rows, strict=True):
        right[id_] += row
    np.testing.assert_array_equal(table, right)


@pytest.mark.parametrize(("kind", "dtype"), [("f4", "float32"), ("f8", "float64")])
def test_random_numbers_are_those_of_the_keys(kind: str, dtype: str) -> None:
    keys, out = np.array([1, -5, 2**62]), np.zeros((3, 6), dtype)
    site = int(np.uint64(8 * GAMMA & WORD).view(np.int64))
    run_native(RANDOM.format(k=kind), 3, [keys, out], [site, 4, 2, 1, 6, 1])  # from the third number on
    right = random_bits(keys, 7, (6,))[:, 2:] * 2.0**-24
    np.testing.assert_array_equal(out[:, :4], right.astype(dtype))
    assert (out[:, 4:] == 0).all()


def test_the_first_id_out_of_range_is_told() -> None:
    ids, errors = np.array([[0, 2], [1, 5], [-1, 9]], "int32"), np.zeros(4, np.int64)
    statics = [3, 1, 1, 2, 2, 0, 0, 1]
    run_native(CHECK.format(i="i4"), 1, [ids, errors], statics)
    assert errors.tolist() == [0, 0, 0, 0]
    run_native(CHECK.format(i="i4"), 3, [ids, errors], statics)
    assert errors.tolist() == [1, 1, 5, 3]


def test_an_element_out_of_range_is_its_calls() -> None:
    ids, errors, offsets = np.array([0, 1, 2, 2, 7]), np.zeros(4, np.int64), np.array([3, 5, 5, 7, 8])
    run_native(CHECK_ELEMENTS.format(i="i8"), 4, [ids, offsets, errors], [3, 1, 1, 1, 1, 0, 0, 0])
    assert errors.tolist() == [1, 3, 7, 3]
