"""Look-ups by computed ids, in what a call computes and in its sequence, on every engine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import ExampleError
from tests.backends import BACKENDS

ROWS = fb.Map(fb.Vector(2))
TABLE = fb.Record((fb.Tensor([3, 2]), fb.Tensor([2], "int32")))


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_what_a_call_computes(backend):
    block = TABLE >> fb.Function(lambda x, ids: ops.gather(x * 2, ids))
    table = [[1, 2], [np.inf, 4], [5, 6]]  # what is not chosen does no harm
    assert block.eval((table, [2, 0]), backend).tolist() == [[10, 12], [2, 4]]
    with pytest.raises(ExampleError, match=r"at example 1 \[1\]: expected int32\[2\] from 0 to 2, found"):
        fb.compile(block, backend).run([(table, [0, 1]), (table, [3, -1])])
    computed = TABLE >> fb.Function(lambda x, ids: ops.gather(x, ids + 1))
    with pytest.raises(ExampleError, match="at example 1: expected ids from 0 to 2, found 3"):
        fb.compile(computed, backend).run([(table, [0, 1]), (table, [0, 2])])


@pytest.mark.parametrize("backend", BACKENDS)
def test_elements_of_a_sequence(backend):
    chosen = fb.Function(lambda x, i: ops.gather(x, i))
    block = fb.AllOf(fb.GetItem(0) >> ROWS, fb.GetItem(1) >> fb.Scalar("int32")) >> chosen
    examples = [([[1, 2], [3, 4], [5, np.inf]], 1), ([[7, 8]], 0)]
    assert [x.tolist() for x in fb.compile(block, backend).run(examples)] == [[3, 4], [7, 8]]
    for rows, wrong in (([[1, 2]], 1), ([], 0), ([[1, 2]], -1)):
        with pytest.raises(ExampleError, match="at example 1"):
            fb.compile(block, backend).run([examples[1], (rows, wrong)])


@given(st.lists(st.lists(st.integers(-9, 9), min_size=1, max_size=4), min_size=1, max_size=3))
@settings(max_examples=5)
def test_the_greatest_of_a_sequence_and_its_gradient(lists):
    w = fb.Parameter([], init=2.0, name="w")
    pointer = fb.Function(lambda x: ops.gather(w * x, ops.segment_argmax(x)))
    block = fb.Map(fb.Scalar()) >> pointer >> fb.AllOf(fb.Identity(), fb.Loss()) >> fb.GetItem(0)
    for backend in BACKENDS:
        program = fb.compile(block, backend)
        assert [float(x) for x in program.run(lists)] == [2 * max(x) for x in lists]
        assert float(program.value_and_grad(lists)[1]["w"]) == sum(map(max, lists))


def test_where_elements_stand():
    block = ROWS >> fb.Function(lambda x: (ops.segment_sum(ops.segment_position(x)), ops.segment_argmax(x)))
    for backend in BACKENDS:
        results = fb.compile(block, backend).run([[[1, 2], [3, 0]], [], [[0, 0]] * 4])
        assert [(int(a), b.tolist()) for a, b in results] == [(1, [1, 0]), (0, [0, 0]), (6, [0, 0])]
