"""Moves of rows against NumPy's indexing: what a launch tells decides, wherever values lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.engines.launch import COPIES, FIELDS, FIRST, STORES, WIDTH
from foldbatch.engines.llvm.move_texts import COTANGENT, GIVE, GRADIENT, STORE, VALUE, take
from tests.engines.llvm.walking import run_native

pytestmark = pytest.mark.llvm
KINDS = {"float32": "f4", "float64": "f8"}
NOTHING = np.zeros(1, np.int64)


@pytest.fixture(autouse=True, scope="module")
def _needs_llvm() -> None:
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")


def fields(first: int = -1, width: int = 1, copies: int = -1, stores: int = 0) -> Any:
    told = np.full(FIELDS, -1, np.int64)
    told[[FIRST, WIDTH, COPIES, STORES]] = first, width, copies, stores
    return told


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([1, 2, 3]),
    st.lists(st.integers(0, 5), max_size=9),
    st.integers(0, 4),
    st.sampled_from(sorted(KINDS)),
)
def test_rows_are_gathered(width: int, rows: list[int], size: int, dtype: str) -> None:
    rows = rows[: len(rows) // width * width]
    arena = np.random.default_rng(len(rows)).normal(size=(6, size)).astype(dtype)
    out, calls = np.zeros((len(rows), size), dtype), len(rows) // width
    places = [arena, np.array([*rows, 0]), NOTHING, fields(width=width), out]
    run_native(take(KINDS[dtype]), calls, places, [size * width])
    np.testing.assert_array_equal(out, arena[rows])
    out[:] = -1
    run_native(take(KINDS[dtype]), calls, [*places[:3], fields(first=2, width=width), out], [size * width])
    assert (out == -1).all()  # rows that follow each other are read where they lie


def test_copies_are_summed_in_order() -> None:
    arena = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
    copies, rows, out = (
        np.array([4, 6, 6, 9]),
        np.array([0, 0, 0, 0, 5, 1, 2, 2, 3]),
        np.ones((3, 3), "float32"),
    )
    run_native(take("f4"), 3, [arena, rows, copies, fields(copies=0), out], [3])
    right = np.array([arena[5] + arena[1], np.zeros(3), arena[2] + arena[2] + arena[3]])
    np.testing.assert_array_equal(out, right)


@pytest.mark.parametrize("what", [VALUE, COTANGENT, STORE])
@pytest.mark.parametrize("stores", [0, 1])
@pytest.mark.parametrize("first", [-1, 0])
@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("turned", [False, True])
def test_rows_are_given(what: int, stores: int, first: int, width: int, turned: bool) -> None:
    """Written or added, to rows that follow each other or that repeat, from values that lie in any order."""
    whole = np.random.default_rng(0).normal(size=(3, 2, 4))  # rows of 2 x 4
    values = np.ascontiguousarray(whole.transpose(0, 2, 1)) if turned else whole
    rows = np.array([1, 5, 0, 1, 4, 2])[: 3 * width]
    arena = np.ones((6, 8 // width))
    statics = (
        [what, 8, 0, 0, 2, 1, 4, 8, 1, 0, 2, 4, 0, 1] if turned else [what, 8, 1, 0, 0, 0, 0, 8, *[0] * 6]
    )
    places = [values, arena, rows, NOTHING, fields(first, width, stores=stores)]
    run_native(GIVE.format(k="f8"), 3, places, statics)
    right, at, given = (
        np.ones_like(arena),
        rows if first < 0 else np.arange(3 * width),
        whole.reshape(3 * width, -1),
    )
    if what == VALUE or (what == COTANGENT and stores):
        right[at] = given
        for row, value in zip(at, given, strict=True):  # of rows that repeat the last one counts
            right[row] = value
    elif not stores:
        np.add.at(right, at, given)
    np.testing.assert_array_equal(arena, right)


def test_values_of_shared_calls_go_to_all_their_rows() -> None:
    values, arena = np.arange(6.0).reshape(3, 2), np.zeros((5, 2))
    places = [values, arena, np.array([4, 0, 2]), np.array([0, 2, 2, 3]), fields(copies=0)]
    run_native(GIVE.format(k="f8"), 3, places, [VALUE, 2, 1, 0, 0, 0, 0, 2, *[0] * 6])
    assert arena.tolist() == [[0, 1], [0, 0], [4, 5], [0, 0], [0, 1]]


@pytest.mark.parametrize("turned", [False, True])
def test_gradients_are_stored_or_added(turned: bool) -> None:
    x, gradient = np.random.default_rng(0).normal(size=(3, 4)), np.ones((3, 4))
    strides = [1, 3] if turned else [4, 1]
    values = np.ascontiguousarray(x.T) if turned else x
    statics = [1, 3, 4, 0, *strides, 0, 4, 1]
    run_native(GRADIENT.format(k="f8"), 1, [values, gradient, fields(stores=0)], statics)
    np.testing.assert_array_equal(gradient, x + 1)
    run_native(GRADIENT.format(k="f8"), 1, [values, gradient, fields(stores=1)], statics)
    np.testing.assert_array_equal(gradient, x)
