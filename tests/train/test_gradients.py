"""Clipping by the joint norm, and what a gradient must be to reach an optimizer."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.errors import ParameterError
from foldbatch.params.parameters import SparseRows, dense
from foldbatch.train.optimizer import check_numbers, clip_by_global_norm, fitting_gradient


def gradients(seed: int, scale: float = 1.0):
    rng = np.random.default_rng(seed)
    rows = np.flatnonzero(rng.random(6) < 0.5)
    return {
        "matrix": scale * rng.normal(size=(3, 2)),
        "scalar": np.array(scale * rng.normal()),
        "table": SparseRows(rows, scale * rng.normal(size=(len(rows), 4)), (6, 4)),
    }


def norm_of(grads) -> float:
    return math.sqrt(sum(float((g**2).sum()) for g in map(dense, grads.values())))


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_clipping_bounds_the_joint_norm_and_keeps_the_direction(seed, scale, max_norm):
    grads = gradients(seed, scale)
    clipped, norm = clip_by_global_norm(grads, max_norm)
    assert norm == pytest.approx(norm_of(grads))
    assert norm_of(clipped) == pytest.approx(min(norm, max_norm))
    factor = min(1.0, max_norm / norm)
    for name, gradient in grads.items():
        np.testing.assert_allclose(dense(clipped[name]), dense(gradient) * factor, rtol=1e-12)


def test_the_norm_of_numbers_whose_squares_overflow_is_right():
    clipped, norm = clip_by_global_norm({"w": np.full(4, 1e30, "float32")}, 1.0)
    assert norm == pytest.approx(2e30)
    np.testing.assert_allclose(clipped["w"], 0.5, rtol=1e-6)


def test_a_nan_passes_clipping_unscaled_so_that_the_optimizer_can_name_it():
    clipped, norm = clip_by_global_norm({"a": np.array([np.nan]), "b": np.array([9.0])}, 1.0)
    assert math.isnan(norm)
    assert clipped["b"] == 9.0


def fit(name, parameter, gradient, factor=1.0):
    fitting, _ = fitting_gradient(name, parameter, gradient, factor)
    check_numbers([(name, fitting)])
    return fitting


def test_a_gradient_of_another_dtype_comes_in_the_parameters():
    sparse, _ = fitting_gradient(
        "w", np.zeros((3, 1), "float32"), SparseRows(np.array([2]), np.ones((1, 1)), (3, 1))
    )
    assert sparse.values.dtype == np.float32
    assert fitting_gradient("w", np.zeros((), "float32"), np.float64(2.0))[0].dtype == np.float32


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("factor", [0.5, -1.0, 1e200])
def test_a_gradient_is_scaled_before_digits_or_finite_numbers_can_be_lost(dtype, factor):
    """Else the factor is left for the pass over the parameter."""
    given = np.array([1e-200, 2e-200])
    found, left = fitting_gradient("w", np.zeros(2, dtype), given, factor)
    np.testing.assert_array_equal(found * left, (given * factor).astype(dtype))
    assert (found is given) == (left == factor) == (dtype == "float64" and factor < 2)


def test_a_gradient_that_a_factor_makes_infinite_is_an_error():
    message = r"w gradient: expected finite numbers, found inf at \(1,\); nothing was changed; call program.find_nan"
    with pytest.raises(ParameterError, match=message):
        fit("w", np.zeros(2, "float32"), np.array([0, 1e30], "float32"), 1e30)


def test_a_parameter_that_cannot_be_updated_is_an_error():
    fixed = np.zeros(2)
    fixed.flags.writeable = False
    for parameter in (fixed, np.zeros(2, "int32"), [0.0, 0.0]):
        with pytest.raises(ParameterError, match="expected a float array that can be updated in place"):
            fitting_gradient("w", parameter, np.zeros(2))
