"""Functions of elements: side by side as vectors, with the values that NumPy gives at the ends of ranges."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.llvm.element_texts import copy, elementwise, zero
from foldbatch.static.op import OPS
from tests.engines.llvm.walking import instructions_of, run_native

pytestmark = pytest.mark.llvm
EDGES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -3.0, 80.0, -80.0]


@pytest.fixture(autouse=True)
def _needs_llvm() -> None:
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")


def along(count: int, *places: int) -> list[int]:
    """Return what a function is told of rows of `count` numbers; each place has a stride inside of them."""
    return [0, 1, 1, count, *(number for step in places for number in (count * step, 0, 0, step))]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["tanh", "softplus", "abs", "exp", "relu", "sigmoid", "sign", "sin", "cos"])
def test_nan_and_infinities_come_out_as_numpys(name: str, dtype: str) -> None:
    x = np.array(EDGES, dtype)
    out = np.empty_like(x)
    run_native(elementwise(OPS[name], [dtype], dtype), 1, [x, out], along(len(x), 1, 1))
    with np.errstate(all="ignore"):
        right = OPS[name].evaluate({}, x)
    np.testing.assert_allclose(out, right, rtol=1e-6, atol=1e-34)


def test_integers_wrap_around() -> None:
    """Python would compute in 64 bits."""
    x, out = np.array([2**31 - 1, 5], "int32"), np.zeros(2, "int32")
    run_native(elementwise(OPS["add"], ["int32", "int32"], "int32"), 1, [x, x, out], along(2, 1, 1, 1))
    assert out.tolist() == [-2, 10]


def test_bools_are_bytes() -> None:
    x, y, out = np.array([True, False, True]), np.array([1.0, 2, 3]), np.zeros(3, bool)
    run_native(elementwise(OPS["cast"], ["float64"], "bool"), 1, [y - 2, out], along(3, 1, 1))
    assert out.view(np.uint8).tolist() == [1, 0, 1]
    numbers = np.zeros(3)
    run_native(
        elementwise(OPS["where"], ["bool", "float64", "float64"], "float64"),
        1,
        [x, y, -y, numbers],
        along(3, 1, 1, 1, 1),
    )
    assert numbers.tolist() == [1, -2, 3]


@pytest.mark.parametrize("steps", [(1, 1), (2, 1), (1, 2), (3, 2)])
def test_strides_are_those_told(steps: tuple[int, int]) -> None:
    """Rows by rows, and what lies between stays as it is."""
    x, out = np.arange(36.0), np.full(36, -1.0)
    run_native(copy("float64"), 3, [x, out], along(4, *steps))
    right = np.full(36, -1.0)
    right[: 12 * steps[1] : steps[1]] = x[: 12 * steps[0] : steps[0]]
    np.testing.assert_array_equal(out, right)
    run_native(zero("float64"), 3, [out], along(4, steps[1]))
    right[: 12 * steps[1] : steps[1]] = 0
    np.testing.assert_array_equal(out, right)


def test_all_rows_may_be_one_run() -> None:
    x, out = np.arange(12.0), np.zeros(12)
    run_native(copy("float64"), 3, [x, out], [1, 1, 1, 4, 0, 0, 0, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize(("dtype", "vector"), [("float32", " x float>"), ("float64", " x double>")])
def test_elements_side_by_side_are_vectors(dtype: str, vector: str) -> None:
    """The loops that LLVM made say so, and do not ask whether memory overlaps."""
    code = instructions_of(elementwise(OPS["tanh"], [dtype], dtype))
    assert any(f"fdiv contract <{n}{vector}" in code for n in (2, 4, 8, 16))
    assert "vector.memcheck" not in code
