"""Blocks that read objects: numbers become arrays of the declared type, and nothing else does."""

from __future__ import annotations

import math

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import ExampleError
from foldbatch.types import TensorType

DATUM_BECOMES = [
    (fb.Scalar(), 1, np.array(1, "float32")),
    (fb.Scalar(), 2.5, np.array(2.5, "float32")),
    (fb.Scalar(), True, np.array(1, "float32")),
    (fb.Scalar("float64"), 0.1, np.array(0.1)),
    (fb.Scalar("int32"), 2**31 - 1, np.array(2**31 - 1, "int32")),
    (fb.Scalar("int32"), True, np.array(1, "int32")),
    (fb.Scalar("int64"), -(2**63), np.array(-(2**63))),
    (fb.Scalar("int64"), np.uint8(7), np.array(7)),
    (fb.Scalar("bool"), False, np.array(False)),
    (fb.Scalar("bool"), np.True_, np.array(True)),
    (fb.Scalar(), np.float16(0.5), np.array(0.5, "float32")),
    (fb.Scalar(), math.inf, np.array(math.inf, "float32")),
    (fb.Vector(3), (1, 2.5, True), np.array([1, 2.5, 1], "float32")),
    (fb.Vector(2, "int64"), range(2), np.array([0, 1])),
    (fb.Vector(0), [], np.zeros(0, "float32")),
    (fb.Vector(2), np.array([1, 2], "int8"), np.array([1, 2], "float32")),
    (fb.Tensor([2, 1]), [[1], [2]], np.array([[1], [2]], "float32")),
    (fb.Tensor((0, 3)), np.zeros((0, 3)), np.zeros((0, 3), "float32")),
    (fb.Tensor([]), 3, np.array(3, "float32")),
    (fb.Scalar("int8"), -128, np.array(-128, "int32")),
    (fb.Scalar("uint8"), np.uint8(255), np.array(255, "int32")),
    (fb.Scalar("int16"), True, np.array(1, "int32")),
    (fb.Scalar("uint16"), np.int64(65535), np.array(65535, "int32")),
    (fb.Scalar("float16"), np.float16(0.1), np.array(np.float16(0.1), "float32")),
    (fb.Scalar("float16"), 1e6, np.array(1e6, "float32")),
    (fb.Vector(2, "int8"), np.array([-1, 2], "int8"), np.array([-1, 2], "int32")),
    (fb.Vector(2, "uint8"), [0, np.int16(3)], np.array([0, 3], "int32")),
    (fb.Vector(2, "float16"), np.array([0.1, -3], "float16"), np.array([np.float16(0.1), -3], "float32")),
    (fb.Vector(2, "float16"), [True, np.int8(3)], np.array([1, 3], "float32")),
    (fb.Tensor([2, 2], "uint8"), np.eye(2, dtype="uint8"), np.eye(2, dtype="int32")),
    (fb.Tensor([2, 2], np.uint16), np.eye(2, dtype="bool"), np.eye(2, dtype="int32")),
    (fb.Scalar("int32"), np.uint16(65535), np.array(65535, "int32")),
    (fb.Scalar("int32"), np.int8(-1), np.array(-1, "int32")),
    (fb.Vector(2, "int32"), np.array([255, 0], "uint8"), np.array([255, 0], "int32")),
    (fb.Vector(1, "int64"), [np.int16(-5)], np.array([-5])),
    (fb.Vector(1, "float64"), np.array([0.1], "float16"), np.array([np.float16(0.1)], "float64")),
]


def test_a_datum_becomes_an_array_of_the_declared_type():
    for block, datum, right in DATUM_BECOMES:
        found = block.eval(datum)
        assert isinstance(found, np.ndarray)
        np.testing.assert_array_equal(found, right, strict=True)


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


def test_narrow_floats_have_gradients_of_the_dtype_they_are_read_as():
    program = fb.compile(fb.Vector(2, "float16") >> fb.Function(lambda x: ops.sum(x * x)) >> fb.Loss())
    data = [np.array([1.5, 0.1], "float16"), [3, 4]]
    loss, _, gradients = program.vjp(data, inputs=True)
    found = gradients["model Vector(2, 'float16')"]
    right = np.array([data[0], data[1]], "float32")
    np.testing.assert_array_equal(found.values, 2 * right, strict=True)
    assert loss == pytest.approx((right**2).sum())


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
