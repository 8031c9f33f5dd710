"""Kernels that move rows of a batch's buffers, on any number of blocks."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.cuda.plans import plan_of
from foldbatch.engines.cuda.row_kernels import MOVES
from tests.engines.cuda.emulated import device, needs_compiler

pytestmark = needs_compiler
BLOCKS = (1, 3)


def test_every_kernel_is_called_what_its_text_says() -> None:
    assert all(f"KERNEL {name}(" in text for name, text in MOVES.items())


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_rows_are_taken(blocks: int, dtype: str) -> None:
    """In words of four bytes or of one."""
    rows = np.random.default_rng(0).integers(0, 2, (5, 3)).astype(dtype)
    source, index = device().put(rows), device().put(np.array([4, 0, 4]))
    target = device().empty((3, 3), dtype)
    arguments = [source.pointer, index.pointer, 3, 3, target.pointer]
    device().launch("take_i4" if dtype == "float32" else "take_b1", blocks, (256, 1), arguments)
    np.testing.assert_array_equal(np.asarray(target), rows[[4, 0, 4]])


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_rows_are_set_to_zero(blocks: int, dtype: str) -> None:
    array, index = device().put(np.ones((4, 3), dtype)), device().put(np.array([0, 3]))
    kernel = "zero_i4" if dtype == "float32" else "zero_b1"
    device().launch(kernel, blocks, (256, 1), [array.pointer, index.pointer, 2, 3])
    assert np.asarray(array).tolist() == [[0] * 3, [1] * 3, [1] * 3, [0] * 3]


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_terms_are_added_as_a_plan_tells(blocks: int, dtype: str) -> None:
    """To the rows that it tells, or one after the other in the place of what is there; many keep their digits."""
    kernel = {"float32": "add_rows_f4", "float64": "add_rows_f8"}[dtype]
    rows = np.array([3, 1] * 50)
    terms = np.full((100, 2), [1.0, 1e-9], dtype)
    terms[0, 0] = 1e8
    terms[-2, 0] = -1e8
    plan, given = device().put(plan_of(rows)), device().put(terms)
    added, alone = device().put(np.ones((5, 2), dtype)), device().put(np.ones((2, 2), dtype))
    device().launch(kernel, blocks, (256, 1), [given.pointer, plan.pointer, 2, added.pointer, 1])
    device().launch(kernel, blocks, (256, 1), [given.pointer, plan.pointer, 2, alone.pointer, 0])
    exact = np.array([[50.0, 5e-8], [48.0, 5e-8]])
    np.testing.assert_allclose(np.asarray(alone), exact, rtol=1e-5, atol=1e-9)
    expected = np.ones((5, 2))
    expected[[1, 3]] += exact
    np.testing.assert_allclose(np.asarray(added), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("count", [1, 700])
def test_losses_are_summed(kind: str, count: int) -> None:
    name = {"float32": "f4", "float64": "f8", "int32": "i4", "int64": "i8"}[kind]
    values, total = device().put(np.arange(count).astype(kind)), device().zeros((1,), "float64")
    device().launch(f"total_{name}", 1, (256, 1), [values.pointer, count, total.pointer])
    assert np.asarray(total).tolist() == [sum(range(count))]
