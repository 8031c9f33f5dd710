"""Functions along lines: stable, in order, with NumPy's answers about NaN, whatever the strides."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.numba.line_texts import BODIES, along_lines
from foldbatch.static.op import OPS
from tests.engines.numba.walking import run_native

pytestmark = pytest.mark.numba


@pytest.fixture(autouse=True)
def _needs_numba() -> None:
    pytest.importorskip("numba", reason="numba is not installed")


def along(name: str, x: np.ndarray, axis: int) -> np.ndarray:
    """Return an op of rows ``x: [n, a, b]`` along an axis, 1 or 2."""
    n, *shape = x.shape
    other = shape[2 - axis]
    kept = name == "softmax"
    out = np.zeros(x.shape if kept else (n, other), np.int64 if name == "argmax" else x.dtype)
    kinds = [f"f{x.itemsize}", "i8" if name == "argmax" else f"f{x.itemsize}"]
    steps = [1, x.shape[2]][:: 1 if axis == 1 else -1]  # from one line to the next, and along it
    strides = [x.shape[1] * x.shape[2], 0, *steps]
    result = strides if kept else [other, 0, 1, 1]
    run_native(along_lines(name, kinds), n, [x, out], [1, other, shape[axis - 1], *strides, *result])
    return out


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("name", ["softmax", "logsumexp", "max", "argmax"])
def test_lines_are_side_by_side_or_apart(name: str, axis: int, dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(dtype) * 30
    right = OPS[name].evaluate({"axis": axis}, x.astype("float64"))
    np.testing.assert_allclose(along(name, x, axis), right, rtol=1e-5, atol=1e-12)


def test_nan_is_the_greatest_and_the_first_counts() -> None:
    x = np.array([[[1, np.nan, 3, np.nan], [2, 5, 5, 1]]])
    assert along("argmax", x, 2).tolist() == np.argmax(x, 2).tolist() == [[1, 1]]
    np.testing.assert_array_equal(along("max", x, 2), np.max(x, 2))


@pytest.mark.parametrize("kind", ["i4", "i8"])
def test_cross_entropy_is_of_the_label(kind: str) -> None:
    x, labels, out = np.random.default_rng(0).normal(size=(4, 3)), np.array([2, 0, 1, 1], kind), np.zeros(4)
    strides = [3, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1]
    run_native(along_lines("cross_entropy", ["f8", "f8", kind]), 4, [x, out, labels], [1, 1, 3, *strides])
    np.testing.assert_allclose(out, np.log(np.exp(x).sum(1)) - x[np.arange(4), labels])


def test_one_hot_rows_of_ids_out_of_range_are_zero() -> None:
    """No memory beside them is touched: the check that stops the batch comes first, but may not be the last."""
    ids, out = np.array([1, 7, -1]), np.full((4, 3), 9.0)
    run_native(along_lines("one_hot", ["i8", "f8"]), 3, [ids, out], [1, 1, 3, 1, 0, 0, 1, 3, 0, 0, 1])
    assert out.tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0], [9, 9, 9]]


def test_bodies_are_ops() -> None:
    assert set(BODIES) <= set(OPS)
