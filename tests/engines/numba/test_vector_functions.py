"""tanh, sigmoid and exp as loops compute them: how exact they are, and at the ends of their ranges."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed")
functions: Any = importlib.import_module("foldbatch.engines.numba.vector_functions")
pytestmark = pytest.mark.numba

TEXT = """
def apply(x, y):
    for i in range(x.size):
        y[i] = {name}(x[i])
"""
# the greatest relative error, of tanh and exp; of sigmoid, which is a sum, in units of 1
EXACT = {"float32": 4e-7, "float64": 1e-15}


def _apply(name: str, x: Any) -> Any:
    kind = {"float32": "f4", "float64": "f8"}[x.dtype.name]
    scope = dict(functions.GLOBALS)
    exec(TEXT.format(name=f"{name}_{kind}"), scope)
    y = np.empty_like(x)
    importlib.import_module("numba").njit(**functions.OPTIONS)(scope["apply"])(x, y)
    return y


def _everywhere(dtype: str) -> Any:
    small = np.geomspace(1e-30, 1, 20_001)
    return np.concatenate([np.linspace(-30, 30, 100_001), small, -small]).astype(dtype)


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("name", ["tanh", "exp"])
def test_relative_errors_are_small(name: str, dtype: str) -> None:
    x = _everywhere(dtype)
    right = getattr(np, name)(x.astype(np.longdouble))
    np.testing.assert_allclose(_apply(name, x).astype(np.longdouble), right, rtol=EXACT[dtype], atol=0)


@pytest.mark.parametrize("dtype", EXACT)
def test_sigmoid_is_within_a_rounding_of_tanh(dtype: str) -> None:
    x = _everywhere(dtype)
    right = 1 / (1 + np.exp(-x.astype(np.longdouble)))
    np.testing.assert_allclose(_apply("sigmoid", x).astype(np.longdouble), right, rtol=0, atol=EXACT[dtype])


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


@pytest.mark.parametrize(
    ("dtype", "greatest", "least"), [("float32", 88.7, -86.9), ("float64", 709.7, -707.9)]
)
def test_exp_overflows_only_where_it_must(dtype: str, greatest: float, least: float) -> None:
    """And is 0 where it would be a denormal number."""
    x = np.array([greatest, least, greatest + 0.1, least - 0.2], dtype)
    found = _apply("exp", x)
    np.testing.assert_allclose(found[:2], np.exp(x[:2]), rtol=1e-6)
    assert found[2:].tolist() == [np.inf, 0]
