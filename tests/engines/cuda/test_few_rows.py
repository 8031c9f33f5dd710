"""Products of few rows: equal to NumPy's, for as many calls as the table tells, and the same bits in any batch."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.driver import MatrixProduct
from foldbatch.engines.cuda.few_rows import MOST_ROWS, is_small_product, launch_of
from tests.engines.cuda.emulator import Emulator
from tests.ptx.driver import PtxDriver
from tests.ptx.needed import needs_ptx

DRIVERS = [Emulator, pytest.param(PtxDriver, marks=needs_ptx)]


def multiplied(
    device: Device, a: Any, b: Any, c: Any, *, across: bool, adds: bool, calls: int, each: int
) -> Any:
    """Return ``c + a b`` or ``a b`` of the rows that there are; the others of c as they were."""
    arrays = [device.put(array) for array in (a, b, c, np.array([calls]))]
    (m, k), n = a.shape, c.shape[1]
    pointers = [array.pointer for array in arrays]
    product = MatrixProduct(a.dtype.name, m, n, k, *pointers[:3], k, b.shape[1], n, False, across, adds)
    assert is_small_product(product)
    device.launch(*launch_of(product, pointers[3] if each else 0, each))
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


def test_many_rows_and_what_lies_across_are_left_to_a_library() -> None:
    product = MatrixProduct("float32", MOST_ROWS, 4, 4, 0, 0, 0, 4, 4, 4)
    assert is_small_product(product)
    for other in ({"m": MOST_ROWS + 1}, {"m": 0}, {"k": 0}, {"count": 2}, {"a_across": True}, {"n": 1 << 20}):
        assert not is_small_product(replace(product, **other)), other
