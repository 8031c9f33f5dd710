"""Sums of gradients, of rows of equal id and of runs of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foldbatch.engines.sums import (
    ROWS,
    reduce_by_length,
    segment_sum,
    sum_axes,
    sum_first,
    sum_outer,
    sum_rows,
    total,
)
from foldbatch.params.parameters import Gradient, SparseRows


def dense(gradient: Gradient) -> Any:
    return gradient.dense() if isinstance(gradient, SparseRows) else gradient


def _sparse(rows: list[int], value: float) -> SparseRows:
    return SparseRows(np.array(rows, np.int64), np.full((len(rows), 2), value), (5, 2))


def test_sparse_gradients_are_added_sparsely() -> None:
    """Rows stay ascending and distinct; with a dense one among them the sum is dense."""
    parts = [_sparse([1, 3], 1.0), _sparse([], 1.0), _sparse([0, 3], 2.0)]
    found = total(parts)
    assert isinstance(found, SparseRows)
    assert found.rows.tolist() == [0, 1, 3]
    np.testing.assert_array_equal(found.dense(), sum(part.dense() for part in parts))
    mixed = total([np.ones((5, 2)), *parts])
    assert isinstance(mixed, np.ndarray)
    np.testing.assert_array_equal(mixed, 1 + found.dense())
    assert total([parts[0]]) is parts[0]


def test_segment_sum_fills_the_whole_buffer() -> None:
    """Whatever stood in it."""
    for lengths in ([0, 0], [2, 0], [0, 3], [1, 2]):
        counts = np.array(lengths)
        out = np.full((2, 2), np.nan)
        segment_sum(np.ones((sum(lengths), 2)), np.cumsum(counts) - counts, counts, out)
        assert out.tolist() == [[n, n] for n in lengths]


@pytest.mark.parametrize("ids", [[0, 2, 5], [3], [], [0, 2, 2], [2, 0, 5]])
def test_rows_that_ascend_are_not_sorted_but_copied(ids: list[int]) -> None:
    """What is returned does not change with the kernel's buffer, in any order."""
    values = np.arange(2.0 * len(ids)).reshape(len(ids), 2)
    found = sum_rows(values, np.array(ids, np.int32), 6)
    expected = np.zeros((6, 2))
    np.add.at(expected, np.array(ids, np.int64), values)
    values[...] = np.nan
    np.testing.assert_array_equal(found.dense(), expected)
    assert found.rows.dtype == np.int64
    assert found.rows.tolist() == sorted(set(ids))


def test_sum_rows_keeps_the_rows_that_occur() -> None:
    """Ascending, each once, summed in the order of the batch."""
    values = np.arange(12, dtype="float32").reshape(3, 2, 2)
    found = sum_rows(values, np.array([[4, 1], [1, 1], [0, 4]], np.int32), 6)
    assert found.rows.tolist() == [0, 1, 4]
    assert found.values.tolist() == [[8, 9], [12, 15], [10, 12]]
    assert (found.shape, found.rows.dtype, found.values.dtype) == ((6, 2), np.int64, np.float32)
    none = sum_rows(np.zeros((0, 2), "float32"), np.zeros(0, np.int64), 6)
    assert none.dense().tolist() == np.zeros((6, 2)).tolist()


@pytest.mark.parametrize("count", [0, 5, 400])
def test_rows_of_a_table_are_summed_by_id(count: int) -> None:
    rng = np.random.default_rng(count)
    ids, values = rng.integers(0, 90, count), rng.normal(size=(count, 40))
    dense = np.zeros((90, 40))
    np.add.at(dense, ids, values)
    found = sum_rows(values, ids, 90)
    assert found.rows.tolist() == sorted(set(ids.tolist()))
    np.testing.assert_allclose(found.dense(), dense, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("count", [0, 1, 17, 100, 100_001])
def test_a_sum_of_many_rows_keeps_its_digits(count: int) -> None:
    """Whatever is odd on the way; the operand stays as it was."""
    x = np.full((count, 2), 0.1, "float32")
    out = np.full(2, np.nan, "float32")
    sum_first(x, out)
    np.testing.assert_allclose(out, np.float32(0.1) * float(count), rtol=5e-7)
    assert (x == np.float32(0.1)).all()


def test_axes_that_are_not_last_are_summed() -> None:
    x = np.random.default_rng(0).normal(size=(3, 40, 4, 5))
    for axes in ((1,), (1, 3)):
        out = np.empty([extent for axis, extent in enumerate(x.shape) if axis not in axes])
        sum_axes(x, axes, out)
        np.testing.assert_allclose(out, x.sum(axes))


@pytest.mark.parametrize("rows", [0, 5, 200 * ROWS + 1])
def test_outer_products_of_many_rows_keep_their_digits(rows: int) -> None:
    x, g, out = (
        np.full((rows, 2), 0.1, "float32"),
        np.full((rows, 3), 0.1, "float32"),
        np.empty((2, 3), "float32"),
    )
    sum_outer(x, g, out)
    np.testing.assert_allclose(out, np.float32(0.1) ** 2 * rows, rtol=3e-5)


def test_runs_of_one_length_and_many_parts_keep_their_digits() -> None:
    """As copies of shared calls, and gradients of examples that run one by one."""
    x, out = np.full((60_000, 2), 0.1, "float32"), np.empty((2, 2), "float32")
    counts = np.array([20_000, 40_000])
    reduce_by_length(np.add, x, np.array([0, 20_000]), counts, out)
    np.testing.assert_allclose(out, np.tile(np.float32(0.1) * counts[:, None], 2), rtol=5e-7)
    summed = dense(total([x[0]] * 20_000))
    assert summed.dtype == np.float32
    np.testing.assert_allclose(summed, np.float32(0.1) * 20_000, rtol=5e-7)
