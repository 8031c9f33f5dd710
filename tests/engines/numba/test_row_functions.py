"""Moves of rows against NumPy's indexing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.static.backends import BACKENDS

pytestmark = [
    pytest.mark.numba,
    pytest.mark.skipif("numba" not in BACKENDS, reason="numba is not installed"),
]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 5), max_size=9),
    st.sampled_from([0, 1, 5]),
    st.sampled_from(["float32", "float64"]),
)
def test_rows_are_moved_as_numpy_does(rows: list[int], width: int, dtype: str) -> None:
    from foldbatch.engines.numba.row_functions import FUNCTIONS  # noqa: PLC0415 - it needs Numba

    at = np.array(rows, np.int64)
    rng = np.random.default_rng(len(rows))
    arena, values = rng.normal(size=(6, width)).astype(dtype), rng.normal(size=(len(at), width)).astype(dtype)
    out = np.empty_like(values)
    FUNCTIONS["gather"](arena, at, out)
    np.testing.assert_array_equal(out, arena[at])
    FUNCTIONS["keep"](values, out)
    np.testing.assert_array_equal(out, values)
    FUNCTIONS["add"](values, out)
    np.testing.assert_array_equal(out, values + values)
    added, right = arena.copy(), arena.copy()
    FUNCTIONS["add_at"](values, at, added)
    np.add.at(right, at, values)
    np.testing.assert_array_equal(added, right)
    put, places = arena.copy(), rng.permutation(6)[: len(at)]
    FUNCTIONS["scatter"](values[: len(places)], places, put)
    np.testing.assert_array_equal(put[places], values[: len(places)])
    rest = np.setdiff1d(np.arange(6), places)
    np.testing.assert_array_equal(put[rest], arena[rest])
