"""Functions along lines: stable, in order, with NumPy's answers about NaN, whatever the strides."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.llvm.line_texts import TOGETHER, along_lines, along_segments
from foldbatch.static.op import OPS
from tests.engines.llvm.walking import run_native

pytestmark = pytest.mark.llvm


@pytest.fixture(autouse=True)
def _needs_llvm() -> None:
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")


def along(name: str, x: np.ndarray, axis: int) -> np.ndarray:
    """Return an op of rows ``x: [n, a, b]`` along an axis, 1 or 2."""
    n, *shape = x.shape
    other = shape[2 - axis]
    kept = name == "softmax"
    out = np.zeros(x.shape if kept else (n, other), np.int64 if name == "argmax" else x.dtype)
    kinds = {"x": f"f{x.itemsize}", "y": "i8" if name == "argmax" else f"f{x.itemsize}"}
    steps = [1, x.shape[2]][:: 1 if axis == 1 else -1]  # from one line to the next, and along it
    strides = [x.shape[1] * x.shape[2], 0, *steps]
    result = strides if kept else [other, 0, 1, 1]
    run_native(
        along_lines(OPS[name].body, kinds), n, [x, out], [1, other, shape[axis - 1], *strides, *result]
    )
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
    text = along_lines(OPS["cross_entropy"].body, {"x": "f8", "y": "f8", "label": kind})
    run_native(text, 4, [x, out, labels], [1, 1, 3, *strides])
    np.testing.assert_allclose(out, np.log(np.exp(x).sum(1)) - x[np.arange(4), labels])


def test_one_hot_rows_of_ids_out_of_range_are_zero() -> None:
    """No memory beside them is touched: the check that stops the batch comes first, but may not be the last."""
    ids, out = np.array([1, 7, -1]), np.full((4, 3), 9.0)
    text = along_lines(OPS["one_hot"].body, {"label": "i8", "y": "f8"})
    run_native(text, 3, [ids, out], [1, 1, 3, 1, 0, 0, 1, 3, 0, 0, 1])
    assert out.tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0], [9, 9, 9]]


@pytest.mark.parametrize("side_by_side", [True, False])
@pytest.mark.parametrize("name", ["segment_sum", "segment_max", "segment_is_max", "segment_softmax"])
def test_sequences_of_any_length(name: str, side_by_side: bool) -> None:
    """Empty ones too; a NaN is the greatest. Segments count from the first call of the batch."""
    offsets, step = np.array([7, 9, 9, 12]), 1 if side_by_side else 2
    x = np.random.default_rng(0).normal(size=(5, 2 * step))[:, ::step]
    x[3, 0] = np.nan
    whole = np.zeros((5, 2 * step))
    whole[:, ::step] = x
    along = "segment_is_max", "segment_softmax"
    out = np.zeros((5 if name in along else 3, 2), bool if name == "segment_is_max" else float)
    text = along_segments(OPS[name].body, "f8", "u1" if name == "segment_is_max" else "f8")
    run_native(text, 3, [offsets, whole, out], [1, 2, 2 * step, 0, step, 2, 0, 1])
    evaluated = (
        [np.asarray(OPS[name].evaluate({}, part)) for part in np.split(x, [2, 2])]
        if name != "segment_sum"
        else [part.sum(0) for part in np.split(x, [2, 2])]
    )
    right = np.concatenate(evaluated) if name in along else np.array(evaluated)
    np.testing.assert_allclose(out, right, rtol=1e-12)


def test_rows_are_repeated_for_elements() -> None:
    offsets, x, out = np.array([7, 9, 9, 12]), np.arange(6).reshape(3, 2), np.zeros((5, 2), np.int64)
    run_native(along_segments(OPS["repeat"].body, "i8", "i8"), 3, [offsets, x, out], [1, 2, 2, 0, 1, 2, 0, 1])
    np.testing.assert_array_equal(out, x[[0, 0, 2, 2, 2]])


def test_lines_that_lie_side_by_side_are_gone_along_together() -> None:
    assert {name for name, op in OPS.items() if op.body in TOGETHER} == {
        *("repeat", "segment_sum", "segment_max", "max")
    }
