"""Sums of gradients and of repeated rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.params import Gradient, SparseRows
from foldbatch.engines.sums import add_repeated, total


def dense(gradient: Gradient) -> Any:
    return gradient.dense() if isinstance(gradient, SparseRows) else gradient


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 100))
def test_repeated_rows_are_added_once_for_each_time(rows: list[int], seed: int) -> None:
    """In the order of the batch."""
    rng = np.random.default_rng(seed)
    values, array = rng.normal(size=(len(rows), 2)), rng.normal(size=(5, 2))
    expected = array.copy()
    np.add.at(expected, rows, values)
    add_repeated(array, np.array(rows, np.int64), values)
    np.testing.assert_allclose(array, expected, rtol=1e-12)


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


def test_total_leaves_its_parts_alone() -> None:
    """Sums are new arrays."""
    parts: list[Gradient] = [np.ones(3), np.ones(3), np.ones(3)]
    assert dense(total(parts)).tolist() == [3, 3, 3]
    assert all(dense(part).tolist() == [1, 1, 1] for part in parts)
