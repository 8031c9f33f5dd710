"""Kernels that move rows of a batch's buffers, on any number of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foldbatch.engines.cuda.row_kernels import plan_of
from foldbatch.engines.cuda.texts.kernel_text import ADDRESSES_AT, HEADER, INDEX_AT, STATUS_AT
from tests.engines.cuda.emulated import device, needs_compiler

pytestmark = needs_compiler
BLOCKS = (1, 3)


def table(ints: list[int], *buffers: Any, status: Any = None, record: Any = ()) -> tuple[int, Any]:
    """Return the place of the first of some numbers of 32 bits in a packed table of buffers, and the table.

    A record of numbers of 64 bits lies behind the buffers.
    """
    head = [0] * HEADER
    head[ADDRESSES_AT], head[STATUS_AT] = HEADER, 0 if status is None else status.pointer
    head += [buffer.pointer for buffer in buffers] + list(record)
    head[INDEX_AT] = 2 * len(head)
    narrow = np.array([0, *ints, *[0] * (1 - len(ints) % 2)], np.int32)  # no place is 0
    return 1, device().put(np.concatenate([np.array(head, np.int64), narrow.view(np.int64)]))


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
    array = device().put(np.ones((4, 3), dtype))
    at, made = table([2, 0, 3, 1], array)  # two rows, and one more that there is room for
    kernel = "zero_i4" if dtype == "float32" else "zero_b1"
    device().launch(kernel, blocks, (256, 1), [made.pointer, 0, at, 3])
    assert np.asarray(array).tolist() == [[0] * 3, [1] * 3, [1] * 3, [0] * 3]


@pytest.mark.parametrize("blocks", BLOCKS)
def test_buffers_begin_as_zeros(blocks: int) -> None:
    """To their last byte."""
    array, status = device().put(np.ones(11, bool)), device().put(np.ones(5, np.int64))
    _, made = table([], array, status=status)
    device().launch("clear", blocks, (256, 1), [made.pointer, 0, 10])
    device().launch("begin", blocks, (256, 1), [made.pointer, 4])
    assert np.asarray(array).tolist() == [False] * 10 + [True]
    assert np.asarray(status).tolist() == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("blocks", BLOCKS)
def test_gradients_of_tables_are_summed_told_and_looked_at(blocks: int) -> None:
    terms, status = device().put(np.array([[1.0], [2.0], [np.inf]])), device().zeros((9,), "int64")
    values, places = device().zeros((2, 1), "float64"), device().zeros((2,), "int64")
    plan = plan_of(np.array([7, 3, 7])).tolist()
    at, made = table(plan, terms, values, places, status=status)
    device().launch("summed_f8", blocks, (256, 1), [made.pointer, 0, at, 1, 1])
    device().launch("targets", blocks, (256, 1), [made.pointer, at, 2])
    device().launch("flagged_f8", blocks, (256, 1), [made.pointer, 1, 1, at, 6])
    device().launch("flagged_f8", blocks, (256, 1), [made.pointer, 0, 2, 0, 7])
    assert np.asarray(values).tolist() == [[2], [np.inf]]
    assert np.asarray(places).tolist() == [3, 7]
    assert np.asarray(status).tolist()[6:] == [1, 0, 0]


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
@pytest.mark.parametrize("apart", [False, True])
def test_losses_are_summed(kind: str, count: int, apart: bool) -> None:
    """Those of calls, where there is room between them."""
    name = {"float32": "f4", "float64": "f8", "int32": "i4", "int64": "i8"}[kind]
    values, status = device().put(np.arange(2 * count).astype(kind)), device().zeros((9,), "int64")
    live = list(range(0, 2 * count, 2))
    record = [0, count, int(apart), 2 * count]
    _, made = table(live, values, status=status, record=record)
    device().launch(f"total_{name}", 1, (256, 1), [made.pointer, 0, HEADER + 1, 8])
    total = np.asarray(status)[8:].view(np.float64)
    assert total.tolist() == [sum(live) if apart else sum(range(count))]
