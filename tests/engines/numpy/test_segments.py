"""Reductions over the elements of sequences."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.numpy.segments import segment_is_max, segment_max, segment_softmax
from foldbatch.engines.sums import MANY, WIDE, segment_sum


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


STARTS, COUNTS = np.array([0, 0, 3]), np.array([0, 3, 2])  # a run without elements, then one of three, of two


def test_the_first_greatest_of_each_run_is_marked() -> None:
    """Of equal ones the first; a NaN is greater than any number."""
    x = np.array([[1.0, 2], [3, 2], [3, 0], [np.nan, 1], [5, 4]])
    out = np.full((5, 2), np.nan)
    segment_is_max(x, STARTS, COUNTS, out)
    assert out.tolist() == [[0, 1], [1, 0], [0, 0], [1, 0], [0, 1]]


def test_a_softmax_adds_up_to_one_over_each_run() -> None:
    """Far from 0 too."""
    x = np.array([0.0, np.log(2), np.log(5), 1e4, 1e4])
    out = np.full(5, np.nan)
    with np.errstate(over="raise"):
        segment_softmax(x, STARTS, COUNTS, out)
    np.testing.assert_allclose(out, [1 / 8, 2 / 8, 5 / 8, 0.5, 0.5], rtol=1e-15)


@pytest.mark.parametrize("reduce", [segment_sum, segment_max])
def test_runs_without_elements_give_zero(reduce) -> None:
    out = np.full((2, 3), np.nan)
    reduce(np.zeros((0, 3)), np.zeros(2, np.int64), np.zeros(2, np.int64), out)
    assert not out.any()
