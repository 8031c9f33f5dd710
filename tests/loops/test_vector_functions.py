"""tanh, sigmoid and exp as loops compute them: how exact they are, and at the ends of their ranges."""

from typing import Any

import numpy as np
import pytest

from tests.engines.llvm.walking import run_native

pytest.importorskip("llvmlite", reason="llvmlite is not installed")
pytestmark = pytest.mark.llvm

TEXT = """# {kind} {kind}
def loop(n, x, y, s):
    for i in range(n):
        y[i] = {name}(x[i])
"""
# the greatest relative error
EXACT = {"float32": 4e-7, "float64": 1e-15}


def _apply(name: str, x: Any) -> Any:
    kind = {"float32": "f4", "float64": "f8"}[x.dtype.name]
    y = np.empty_like(x)
    run_native(TEXT.format(name=name, kind=kind), len(x), [x, y], [])
    return y


def _everywhere(dtype: str) -> Any:
    small = np.geomspace(1e-30, 1, 20_001)
    end = {"float32": 110, "float64": 760}[dtype]  # where exp is 0 or infinite
    grid = np.linspace(-30, 30, 50_001), np.linspace(-end, end, 50_001)
    return np.concatenate([*grid, small, -small]).astype(dtype)


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("name", ["tanh", "exp", "sigmoid"])
def test_relative_errors_are_small(name: str, dtype: str) -> None:
    """Over the whole range; below the least normal number as small as that has digits."""
    x = _everywhere(dtype)
    wide = x.astype(np.longdouble)
    with np.errstate(over="ignore"):
        right = 1 / (1 + np.exp(-wide)) if name == "sigmoid" else getattr(np, name)(wide)
        infinite = np.isinf(right.astype(dtype))
    found = _apply(name, x)
    np.testing.assert_array_equal(np.isinf(found), infinite)
    finite, least = np.isfinite(found), np.finfo(dtype).smallest_subnormal
    np.testing.assert_allclose(
        found.astype(np.longdouble)[finite], right[finite], rtol=EXACT[dtype], atol=least
    )


@pytest.mark.parametrize("dtype", EXACT)
def test_tanh_and_sigmoid_stay_within_their_limits(dtype: str) -> None:
    """Or 1 - tanh(x)^2 would be negative."""
    x = 2 * _everywhere(dtype)
    tanh, sigmoid = _apply("tanh", x), _apply("sigmoid", x)
    assert (tanh.min(), tanh.max()) == (-1, 1)
    assert (sigmoid.min(), sigmoid.max()) == (0, 1)


@pytest.mark.parametrize("dtype", EXACT)
def test_infinities_have_limits_and_nan_stays(dtype: str) -> None:
    x = np.array([-np.inf, np.inf, np.nan, 0.0], dtype)
    np.testing.assert_array_equal(_apply("tanh", x), [-1, 1, np.nan, 0])
    np.testing.assert_array_equal(_apply("sigmoid", x), [0, 1, np.nan, 0.5])
    np.testing.assert_array_equal(_apply("exp", x), [0, np.inf, np.nan, 1])
