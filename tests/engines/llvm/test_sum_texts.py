"""Sums keep their digits, along any strides; whole numbers and bools are added as NumPy adds them."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.llvm.sum_texts import COLUMNS, FEW, ROWS_KEPT, ROWS_SUMMED, sums
from tests.engines.llvm.walking import run_native

pytestmark = pytest.mark.llvm


@pytest.fixture(autouse=True)
def _needs_llvm() -> None:
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")


def test_the_accumulators_are_enough() -> None:
    from foldbatch.engines.llvm import vector_functions  # noqa: PLC0415 - it needs llvmlite

    assert vector_functions.ACCUMULATORS == COLUMNS


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("rows", [0, 1, FEW, FEW + 1, 100])
@pytest.mark.parametrize("columns", [1, 3, COLUMNS + 5])
def test_all_rows_are_summed(columns: int, rows: int, more: int) -> None:
    """Side by side, and with gaps."""
    x = np.random.default_rng(0).normal(size=(rows, columns, 2)).astype("float32")
    for gap in (1, 2):
        read = np.ascontiguousarray(x[:, :, :gap])
        out = np.full((columns, gap), 7, "float32")
        extents = [1, 1, columns, 1, 0]
        strides = [columns * gap, 0, 0, gap, 0, 0], [0, 0, 0, gap]
        run_native(sums("f4"), rows, [read, out], [ROWS_SUMMED, more, *extents, *strides[0], *strides[1]])
        right = x[:, :, 0].astype("float64").sum(0) + 7 * more
        np.testing.assert_allclose(out[:, 0], right, rtol=1e-6, atol=1e-5)
        assert (out[:, 1:] == 7).all()


@pytest.mark.parametrize("extents", [(2, 3), (5, 40)])
def test_axes_of_each_row_are_summed(extents: tuple[int, int]) -> None:
    """The first and the last of three, or the middle one."""
    a, c = extents
    x = np.random.default_rng(0).normal(size=(3, a, 4, c)).astype("float32")
    out, middle = np.zeros((3, 4), "float32"), np.zeros((3, a, c), "float32")
    row = 4 * a * c
    both = [ROWS_KEPT, 0, 1, 4, 1, a, c, row, 0, c, 0, 4 * c, 1, 4, 0, 1, 0]
    run_native(sums("f4"), 3, [x, out], both)
    np.testing.assert_allclose(out, x.astype("float64").sum((1, 3)), rtol=1e-5, atol=1e-5)
    one = [ROWS_KEPT, 0, 1, a, c, 1, 4, row, 0, 4 * c, 1, 0, c, a * c, 0, c, 1]
    run_native(sums("f4"), 3, [x, middle], one)
    np.testing.assert_allclose(middle, x.astype("float64").sum(2), rtol=1e-5, atol=1e-5)


def test_whole_numbers_wrap_around_and_bools_are_joined() -> None:
    """A sum of bools is whether one is True."""
    numbers, out = np.full(20, 2**30, "int32"), np.zeros(1, "int32")
    along = [ROWS_SUMMED, 0, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    run_native(sums("i4"), 20, [numbers, out], along)
    assert out.tolist() == numbers.sum(dtype="int32", keepdims=True).tolist()
    truths, some = np.array([[True, False], [True, False]]), np.zeros(2, bool)
    along = [ROWS_SUMMED, 0, 1, 1, 2, 1, 0, 2, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    run_native(sums("u1", plus="|"), 2, [truths, some], along)
    assert some.view(np.uint8).tolist() == [1, 0]


def test_a_sum_of_a_hundred_thousand_rows_keeps_its_digits() -> None:
    x, out = np.full(100_000, 0.1, "float32"), np.zeros(1, "float32")
    run_native(sums("f4"), len(x), [x, out], [ROWS_SUMMED, 0, 1, 1, 1, 1, 0, 1, *[0] * 9])
    assert out[0] == pytest.approx(x.astype("float64").sum(), rel=1e-7)
