"""Common kernels yield the same on any number of blocks."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from foldbatch.engines.cuda.common import COMMON, TEXTS, bits
from foldbatch.engines.cuda.device import Device
from tests.engines.cuda.emulated import device, needs_compiler
from tests.ptx.driver import PtxDriver
from tests.ptx.needed import needs_ptx

pytestmark = needs_compiler


def test_every_kernel_is_called_what_its_text_says():
    assert all(f"KERNEL {name}(" in text for name, text in COMMON.items())
    assert len(COMMON) == 2 * len(TEXTS) + 3


@pytest.mark.parametrize("number", [0.0, -0.1, math.inf, 1e-300])
def test_numbers_travel_as_bits(number):
    out = device().zeros((3,), "float64")
    device().launch("fill_f8", 1, (1, 1), [out.pointer, 2, bits(number)])
    assert out.tolist() == [number, number, 0.0]
    assert -(2**63) <= bits(number) < 2**63


@pytest.mark.parametrize("blocks", [1, 3, 64])
def test_squares_are_added_up_on_any_number_of_blocks(blocks):
    array = device().put(np.arange(50, dtype="float32"))
    sums, answer = device().zeros((64,), "float64"), device().empty((2,), "float64")
    device().launch("squares_f4", blocks, (256, 1), [sums.pointer, array.pointer, 50])
    device().launch("clip_factor", 1, (256, 1), [answer.pointer, sums.pointer, 64, bits(10.0)])
    norm = math.sqrt(sum(i * i for i in range(50)))
    np.testing.assert_allclose(answer, [norm, 10 / norm], rtol=1e-14)


@pytest.mark.parametrize("blocks", [1, 2, 7])
def test_elements_are_visited_once_on_any_number_of_blocks(blocks):
    array = device().put(np.arange(5.0))
    arguments = [array.pointer, array.pointer, array.pointer, 5]
    device().launch("add_f8", blocks, (256, 1), arguments)
    assert array.tolist() == [0, 2, 4, 6, 8]


@cache
def on_ptx():
    return Device(PtxDriver())


@needs_ptx
@pytest.mark.parametrize("threads", [(1, 1), (48, 1), (64, 1)])
def test_threads_of_a_block_add_up_squares_together_without_races(threads):
    array = on_ptx().put(np.arange(150.0))
    sums, answer = on_ptx().zeros((8,), "float64"), on_ptx().zeros((2,), "float64")
    on_ptx().launch("squares_f8", 2, threads, [sums.pointer, array.pointer, 150])
    on_ptx().launch("clip_factor", 1, threads, [answer.pointer, sums.pointer, 8, bits(10.0)])
    norm = np.linalg.norm(np.arange(150.0))
    np.testing.assert_allclose(answer, [norm, 10 / norm], rtol=1e-14)


@needs_ptx
def test_threads_find_what_is_not_finite_without_races():
    values, flags = np.ones((20, 5)), on_ptx().zeros((2,), "int64")
    values[3:] = np.nan
    faulty = on_ptx().put(values)
    for k, size in enumerate((10, 100)):
        arguments = [flags.pointer + 8 * k, faulty.pointer, size, bits(1.0)]
        on_ptx().launch("flag_f8", 2, (8, 1), arguments)
    assert flags.tolist() == [0, 1]
