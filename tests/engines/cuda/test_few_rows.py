"""Products of few rows: equal to NumPy's, for as many calls as the table tells, and the same bits in any batch."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.driver import MatrixProduct
from foldbatch.engines.cuda.few_rows import (
    DEFAULT,
    TRIAL,
    TRIAL_NAMES,
    TRIAL_TEXT,
    Reach,
    is_small_product,
    launch_of,
)
from tests.engines.cuda.emulator import Emulator
from tests.ptx.driver import PtxDriver
from tests.ptx.needed import needs_ptx

DRIVERS = [Emulator, pytest.param(PtxDriver, marks=needs_ptx)]


def multiplied(
    device: Device,
    a: Any,
    b: Any,
    c: Any,
    *,
    across: bool,
    adds: bool,
    calls: int,
    each: int,
    reach: Reach = DEFAULT,
) -> Any:
    """Return ``c + a b`` or ``a b`` of the rows that there are; the others of c as they were."""
    arrays = [device.put(array) for array in (a, b, c, np.array([calls]))]
    (m, k), n = a.shape, c.shape[1]
    left, right, result, counter = (array.pointer for array in arrays)
    layout = k, b.shape[1], n, False, across, adds
    product = MatrixProduct(a.dtype.name, m, n, k, left, right, result, *layout)
    assert is_small_product(product, reach)
    name, blocks, threads, arguments = launch_of(product, counter if each else 0, each, reach)
    kernel = device.kernel(TRIAL_TEXT, name) if name in TRIAL_NAMES else name
    device.launch(kernel, blocks, threads, arguments)
    return device.read(arrays[2])


@pytest.mark.parametrize("make", DRIVERS)
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_a_product_is_numpys_for_the_rows_that_there_are(make: Any, data: Any) -> None:
    draw = data.draw
    dtype = draw(st.sampled_from(["float32", "float64"]))
    n, k, each = draw(st.integers(1, 70)), draw(st.integers(1, 700)), draw(st.integers(0, 2))
    room = draw(st.integers(1, 9))
    calls = draw(st.integers(0, room)) if each else room
    across, adds = draw(st.booleans()), draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    m = room * max(1, each)
    a, b, c = (
        rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (n, k) if across else (k, n), (m, n))
    )
    how = {"across": across, "adds": adds, "calls": calls, "each": each}
    device = Device(make())
    found = multiplied(device, a, b, c, **how)
    there = calls * max(1, each)
    wide = [array.astype("float64") for array in (a, b, c)]
    expected = wide[0] @ (wide[1].T if across else wide[1]) + (wide[2] if adds else 0)
    np.testing.assert_allclose(found[:there], expected[:there], atol=1e-3 if dtype == "float32" else 1e-11)
    np.testing.assert_array_equal(found[there:], c[there:])
    if there:  # a row alone has the same bits
        one = multiplied(
            device, a[there - 1 : there], b, c[there - 1 : there], **{**how, "calls": 1, "each": 0}
        )
        np.testing.assert_array_equal(one[0], found[there - 1])


@pytest.mark.parametrize("make", DRIVERS)
@pytest.mark.parametrize(("dtype", "across"), [("float32", False), ("float32", True), ("float64", True)])
@pytest.mark.parametrize("m", [64, 131])
def test_blocks_of_more_rows_compute_the_same_bits(make: Any, m: int, dtype: str, *, across: bool) -> None:
    """On trial, products of 64 rows and more have larger blocks, and go up to 384 rows."""
    device, rng, n, k = Device(make()), np.random.default_rng(m), 35, 150
    a, b, c = (
        rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (n, k) if across else (k, n), (m, n))
    )
    how: dict[str, Any] = {"across": across, "adds": True}
    larger = multiplied(device, a, b, c, **how, calls=m - 3, each=1, reach=TRIAL)
    for low in range(0, m - 3, 40):
        part = slice(low, min(low + 40, m - 3))
        rows = part.stop - part.start
        small = multiplied(device, a[part], b, c[part], **how, calls=rows, each=0)
        np.testing.assert_array_equal(larger[part], small)
    np.testing.assert_array_equal(larger[m - 3 :], c[m - 3 :])


def test_blocks_have_as_many_rows_as_the_trial_says() -> None:
    def launched(rows: int, dtype: str = "float32", *, across: bool = False) -> tuple[str, int]:
        product = MatrixProduct(dtype, rows, 32, 4, 0, 0, 0, 4, 4, 32, b_across=across)
        return launch_of(product, 0, 0, TRIAL)[:2]

    assert launched(63) == ("few_rows_4_f4", 16)
    assert launched(64) == ("few_rows_8_f4", 8)
    assert launched(384) == ("few_rows_16_f4", 24)
    assert launched(384, across=True) == ("few_rows_8_across_f4", 4 * 48)
    assert launched(128, "float64") == ("few_rows_8_f8", 16)
    assert is_small_product(MatrixProduct("float32", 384, 4, 4, 0, 0, 0, 4, 4, 4), TRIAL)


def test_many_rows_and_what_lies_across_are_left_to_a_library() -> None:
    product = MatrixProduct("float32", DEFAULT.rows, 4, 4, 0, 0, 0, 4, 4, 4)
    assert is_small_product(product)
    for other in (
        {"m": DEFAULT.rows + 1},
        {"m": 0},
        {"k": 0},
        {"count": 2},
        {"a_across": True},
        {"n": 1 << 20},
    ):
        assert not is_small_product(replace(product, **other)), other
