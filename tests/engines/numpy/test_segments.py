"""Reductions over runs of rows."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.numpy.segments import MANY, WIDE, segment_max, segment_sum, sum_rows


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


@pytest.mark.parametrize("width", [(), (MANY,), (2, WIDE)], ids=str)
@pytest.mark.parametrize("runs", [0, 1, MANY - 1, MANY, 3 * MANY])
def test_runs_are_reduced_one_by_one_and_together_alike(runs: int, width: tuple[int, ...]) -> None:
    """Few or many runs, narrow or wide rows, some of them empty: the ways differ, the result does not."""
    rng = np.random.default_rng(runs)
    counts = rng.integers(0, 6, runs)
    starts = np.cumsum(counts) - counts
    x = rng.normal(size=(int(counts.sum()), *width))
    sums, tops = np.full((2, runs, *width), np.nan)
    segment_sum(x, starts, counts, sums)
    segment_max(x, starts, counts, tops)
    for i, (start, count) in enumerate(zip(starts, counts, strict=True)):
        part = x[start : start + count]
        np.testing.assert_allclose(sums[i], part.sum(axis=0), rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(tops[i], part.max(axis=0) if count else np.zeros(width))


@pytest.mark.parametrize("count", [0, 5, 400])
def test_rows_of_a_table_are_summed_by_id(count: int) -> None:
    rng = np.random.default_rng(count)
    ids, values = rng.integers(0, 90, count), rng.normal(size=(count, 40))
    dense = np.zeros((90, 40))
    np.add.at(dense, ids, values)
    found = sum_rows(values, ids, 90)
    assert found.rows.tolist() == sorted(set(ids.tolist()))
    np.testing.assert_allclose(found.dense(), dense, rtol=1e-12, atol=1e-12)
