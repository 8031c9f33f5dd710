"""Blocks that read objects: numbers become arrays of the declared type, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import ExampleError
from foldbatch.types import TensorType


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [("int8", "int32"), ("uint8", "int32"), ("int16", "int32"), ("uint16", "int32"), ("float16", "float32")],
)
def test_narrow_data_are_widened_in_every_place_and_batch(dtype, wide):
    """Arrays, scalars and Python numbers; one by one, in columns, prepared, and in another dtype's stead."""
    low, high = (0, 1) if dtype == "float16" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    rows = [[low, high], np.array([high, low], dtype), (np.dtype(dtype).type(high), 1)]
    right = [[low, high], [high, low], [high, 1]]
    vector = fb.Vector(2, dtype)
    assert vector.output_type == TensorType((2,), wide)
    for block in (vector, fb.Vector(2, wide)):
        program = fb.compile(fb.AllOf(fb.Map(block), fb.Map(fb.Map(fb.Scalar(dtype)))))
        for examples in ([rows], program.prepare([rows])):
            ((found, scalars),) = program.run(examples)
            assert [x.tolist() for x in found] == right
            assert [[x.item() for x in row] for row in scalars] == right
            assert {x.dtype for x in found} == {x.dtype for row in scalars for x in row} == {np.dtype(wide)}
    for backend in ("reference", "numpy"):
        sums = fb.compile(vector >> fb.Function(lambda x: ops.sum(x * 2)), backend).run(rows)
        assert [float(x) for x in sums] == [2.0 * sum(row) for row in right]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_integers_that_do_not_fit_the_declared_dtype_are_refused(dtype):
    limits = np.iinfo(dtype)
    program = fb.compile(fb.Map(fb.Scalar(dtype)))
    for wrong in (limits.min - 1, limits.max + 1, np.int64(limits.max + 1), -(2**40)):
        for example in ([wrong], [1, 2, wrong, limits.max]):
            with pytest.raises(ExampleError, match=f"expected {dtype}, found .*; declare int32") as caught:
                program.run([[1], example])
            assert f"at example 1 [{example.index(wrong)}]" in caught.value.where


@pytest.mark.parametrize(
    ("block", "example", "right"),
    [
        (fb.InputTransform(len), "four", 4),
        (fb.InputTransform(str.split) >> fb.GetItem(1), "a b", "b"),
        (fb.Identity(), "whatever", "whatever"),
        (fb.Void(), "whatever", None),
    ],
)
def test_objects_are_read_as_python_reads_them(block, example, right):
    assert block.eval(example) == right


def test_a_function_of_objects_is_called_once_for_each_visit():
    calls = []
    block = fb.Map(fb.InputTransform(lambda x: calls.append(x) or x) >> fb.Scalar())
    program = fb.compile(block)
    program.run([[1, 2], [3]])
    assert calls == [1, 2, 3]
    prepared = program.prepare([[4]])
    program.run(prepared)
    program.value_and_grad(prepared)
    assert calls == [1, 2, 3, 4]
