"""Sums, norms and faults of gradients on a device, against NumPy."""

import math

import numpy as np
import pytest

from foldbatch.engines.cuda.device import DeviceArray, DeviceRows, computed, flags_of
from foldbatch.engines.nonfinite import look_for_not_finite
from foldbatch.engines.pending import Pending
from foldbatch.engines.sums import total
from foldbatch.params.parameters import SparseRows, dense
from foldbatch.train.optimizer import clip_by_global_norm, scale
from tests.engines.cuda.emulated import device, needs_compiler

pytestmark = needs_compiler
DTYPES = ["float32", "float64"]


def sparse(rng, dtype, *, where, known=False):
    """A gradient of a table of 9 rows, on the host or on the device."""
    rows = np.flatnonzero(rng.random(9) < 0.5)
    values = rng.normal(size=(len(rows), 4)).astype(dtype)
    if where == "host":
        return SparseRows(rows, values, (9, 4))
    if known:
        return DeviceRows(rows, device().put(values), (9, 4), device().put(rows))
    return SparseRows(rows, device().put(values), (9, 4))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("known", [False, True])
def test_a_sparse_gradient_is_spread_over_its_table_on_the_device(dtype, known):
    host = sparse(np.random.default_rng(1), dtype, where="host")
    there = sparse(np.random.default_rng(1), dtype, where="device", known=known)
    made = there.dense()
    assert isinstance(made, DeviceArray)
    np.testing.assert_array_equal(made, host.dense())
    nothing = SparseRows(np.zeros(0, np.int64), device().put(np.zeros((0, 4), dtype)), (9, 4))
    np.testing.assert_array_equal(nothing.dense(), np.zeros((9, 4)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kinds", [("device",) * 3, ("host", "device"), ("device", "host")])
def test_sparse_gradients_of_a_table_are_summed_row_by_row(dtype, kinds):
    rng = np.random.default_rng(2)
    parts = [sparse(rng, dtype, where=where) for where in kinds]
    made = total(parts)
    assert isinstance(made.values, DeviceArray)
    assert (np.diff(made.rows) > 0).all()
    np.testing.assert_array_equal(made.places, made.rows)
    tolerance = 1e-6 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(made.dense(), sum(map(dense, parts)), rtol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dense_and_sparse_gradients_are_summed_on_the_device(dtype):
    rng = np.random.default_rng(3)
    parts = [device().put(rng.normal(size=(9, 4)).astype(dtype)), sparse(rng, dtype, where="device")]
    parts.append(rng.normal(size=(9, 4)).astype(dtype))
    made = total(parts)
    assert isinstance(made, DeviceArray)
    np.testing.assert_allclose(made, sum(map(dense, parts)), rtol=1e-6)
    assert total(parts[:1]) is parts[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [None, 0, 5, 16])
def test_the_first_array_that_is_not_finite_is_found(dtype, bad):
    """Among many, of both dtypes, and of none where all are finite."""
    arrays = [np.full((k, 3), np.finfo(dtype).max, dtype if k % 3 else "float64") for k in range(17)]
    arrays[-1] = np.array(1.0)
    if bad == 0:
        arrays[0] = np.array([np.nan])
    elif bad is not None:
        arrays[bad] = np.full_like(arrays[bad], 1.0)
        arrays[bad].flat[-1] = -np.inf
        arrays[16].fill(np.nan)
    there = [device().put(array) for array in arrays]
    assert there[0].first_not_finite(there)() == bad
    name = look_for_not_finite(dict(zip(map(str, range(17)), there, strict=True)))()
    assert name == (None if bad is None else str(bad))


def test_a_factor_may_make_a_gradient_infinite():
    arrays = [device().put(np.array([1e30], "float32")), device().put(np.array([1.0], "float32"))]
    assert np.asarray(flags_of(device(), arrays, 1e10)).tolist() == [1, 0]
    assert np.asarray(flags_of(device(), [])).tolist() == []


def batch(seed, dtype="float64", size=1.0):
    rng = np.random.default_rng(seed)
    table = sparse(rng, dtype, where="host")
    grads = {
        "matrix": (size * rng.normal(size=(31, 20))).astype(dtype),
        "scalar": np.array(size * rng.normal(), dtype),
        "table": SparseRows(table.rows, (size * table.values).astype(dtype), table.shape),
        "none": np.zeros((0, 3), dtype),
    }
    there = {name: device().put(g) for name, g in grads.items() if name != "table"}
    there["table"] = SparseRows(table.rows, device().put(grads["table"].values), table.shape)
    return grads, {name: there[name] for name in grads}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("max_norm", [0.5, 1e3, math.inf])
def test_clipping_on_the_device_is_that_of_the_host(dtype, max_norm):
    host, there = batch(5, dtype)
    expected, norm = clip_by_global_norm(host, max_norm)
    made, found = clip_by_global_norm(there, max_norm)
    assert isinstance(found, Pending)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    assert float(found) == pytest.approx(norm, rel=tolerance)
    for name, gradient in made.items():
        assert isinstance(gradient.values if name == "table" else gradient, DeviceArray)
        np.testing.assert_allclose(dense(gradient), dense(expected[name]), rtol=tolerance)
        assert dense(gradient).dtype == dtype


def test_large_numbers_have_a_norm_and_what_is_not_finite_passes_unscaled():
    _, there = batch(6, "float32", 1e30)
    made, norm = clip_by_global_norm(there, 1.0)
    assert math.isfinite(norm)
    assert clip_by_global_norm(made, 10.0)[1] == pytest.approx(1.0, rel=1e-5)
    there["scalar"] = device().put(np.array(np.nan, "float32"))
    made, norm = clip_by_global_norm(there, 1.0)
    assert math.isnan(norm)
    np.testing.assert_array_equal(made["matrix"], there["matrix"])


def test_gradients_of_host_and_device_are_clipped_together():
    host, there = batch(7)
    mixed = host | {"matrix": there["matrix"]}
    assert float(clip_by_global_norm(mixed, 1.0)[1]) == pytest.approx(clip_by_global_norm(host, 1.0)[1])


def test_scaled_gradients_stay_on_the_device():
    host, there = batch(8)
    known = DeviceRows(there["table"].rows, there["table"].values, (9, 4), device().put(there["table"].rows))
    made = scale(there | {"known": known}, 0.1)
    for name, gradient in scale(host, 0.1).items():
        np.testing.assert_array_equal(dense(made[name]), dense(gradient))
        assert not isinstance(made[name], np.ndarray)
    assert made["known"].places is known.places


def test_a_number_on_the_left_of_a_quotient_is_computed_on_the_host():
    assert computed(np.true_divide, (1.0, device().put(np.ones(2)))) is None
