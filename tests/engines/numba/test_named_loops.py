"""Loops with names against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.numba.loop_compiler import called_by
from foldbatch.engines.numba.named_loops import TEXTS, text_of
from foldbatch.static.backends import BACKENDS

needs_numba = pytest.mark.skipif("numba" not in BACKENDS, reason="numba is not installed")


def test_a_name_tells_the_kinds_of_numbers() -> None:
    assert text_of("cross_entropy_f4_i8").startswith("# f4[2], i8[1], f4[1]w\n")  # type: ignore[union-attr]
    for name in ("cross_entropy", "softmax_of_f4", "tanh_f4", "loop_f8"):
        assert text_of(name) is None
    assert all(text_of(f"{name}_f4_i4") for name in TEXTS)


@pytest.mark.numba
@needs_numba
@pytest.mark.parametrize(("kind", "dtype"), [("f4", "float32"), ("f8", "float64")])
class TestCompiled:
    """With Numba."""

    def test_sums_and_softmax_are_numpys(self, kind: str, dtype: str) -> None:
        rng, error = np.random.default_rng(0), {"f4": 3e-6, "f8": 1e-13}[kind]
        loops = called_by(f"sum_axis_{kind}() softmax_{kind}() cross_entropy_{kind}_i4()")
        for shape in ((0, 3, 2), (4, 1, 5), (3, 9, 1), (2, 0, 3)):
            x = rng.normal(size=shape).astype(dtype)
            sums = np.empty((shape[0], shape[2]), dtype)
            loops[f"sum_axis_{kind}"](x, sums)
            np.testing.assert_allclose(sums, x.sum(1), rtol=error, atol=error)
        for shape in ((0, 3), (5, 1), (7, 6)):
            x = 30 * rng.normal(size=shape).astype(dtype)
            soft, entropy = np.empty_like(x), np.empty(shape[0], dtype)
            labels = rng.integers(0, shape[1], shape[0]).astype("int32")
            loops[f"softmax_{kind}"](x, soft)
            loops[f"cross_entropy_{kind}_i4"](x, labels, entropy)
            shifted = np.exp(x.astype("float64") - x.max(1, keepdims=True, initial=-np.inf))
            right = shifted / shifted.sum(1, keepdims=True)
            np.testing.assert_allclose(soft, right, rtol=20 * error, atol=1e-30)
            at = -np.log(right[np.arange(len(x)), labels])
            np.testing.assert_allclose(entropy, at, rtol=20 * error, atol=20 * error)

    def test_rows_of_a_table_are_added_up(self, kind: str, dtype: str) -> None:
        """Three a row, none where the place is -1; what was there does not matter."""
        table = np.arange(8, dtype=dtype).reshape(4, 2)
        place = np.array([1, -1, 3, -1, -1, -1, -1, 0, 0])
        out = np.full((3, 2), np.nan, dtype)
        called_by(f"add_up_{kind}()")[f"add_up_{kind}"](table, place, out)
        np.testing.assert_array_equal(out, [[2 + 6, 3 + 7], [0, 0], [0, 2]])

    def test_what_is_not_finite_stays_so(self, kind: str, dtype: str) -> None:
        loops = called_by(f"softmax_{kind}() cross_entropy_{kind}_i8()")
        x = np.array([[1, np.nan, 2], [np.nan, 1, 2], [1, 1000, -1000]], dtype)
        soft, entropy = np.empty_like(x), np.empty(3, dtype)
        loops[f"softmax_{kind}"](x, soft)
        loops[f"cross_entropy_{kind}_i8"](x, np.array([0, 2, 1]), entropy)
        assert np.isnan(soft[:2]).all()
        assert soft[2].tolist() == [0, 1, 0]
        assert np.isnan(entropy[:2]).all()
        assert entropy[2] == 0

    def test_rows_are_spread_and_summed(self, kind: str, dtype: str) -> None:
        loops = called_by(f"spread_{kind}() sum_copies_{kind}()")
        values = np.arange(6, dtype=dtype).reshape(3, 2)
        copies, rows = np.array([10, 12, 12, 15]), np.array([4, 0, 1, 5, 2])  # the second call has none
        arena = np.full((6, 2), -1, dtype)
        loops[f"spread_{kind}"](values, copies, rows, arena)
        assert arena.tolist() == [[0, 1], [4, 5], [4, 5], [-1, -1], [0, 1], [4, 5]]
        sums = np.empty_like(values)
        loops[f"sum_copies_{kind}"](arena, copies, rows, sums)
        assert sums.tolist() == [[0, 2], [0, 0], [12, 15]]
