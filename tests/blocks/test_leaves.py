"""Blocks that read objects: numbers become arrays of the declared type, and nothing else does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import foldbatch as fb
from foldbatch.blocks.tracer import BadDataError, column
from foldbatch.errors import ExampleError
from foldbatch.types import DTYPES, TensorType


@pytest.mark.parametrize(
    ("block", "datum", "right"),
    [
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
    ],
)
def test_a_datum_becomes_an_array_of_the_declared_type(block, datum, right):
    found = block.eval(datum)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, right, strict=True)


def test_a_number_that_is_none_passes_for_users_to_mask():
    assert math.isnan(fb.Scalar().eval(math.nan))


DATA = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(-3, 3) | st.floats() | st.none(), max_size=3),
    st.lists(st.lists(st.integers(-3, 3), max_size=2), max_size=2),
    hnp.arrays(
        st.sampled_from(["int8", "float16", "float64", "bool", "uint64"]),
        hnp.array_shapes(min_dims=0, max_dims=2, max_side=3),
    ),
)


@given(st.sampled_from(DTYPES), st.sampled_from([(), (2,), (1, 2)]), DATA, st.none() | st.integers(1, 3))
def test_a_column_holds_what_numpy_would_read_or_is_refused(dtype, shape, datum, bound):
    """One wrong datum is refused; one that is read means the same in Python."""
    type_ = TensorType(shape, dtype)
    try:
        found = column([datum], type_, bound if dtype.startswith("int") else None)
    except BadDataError as error:
        assert issubclass(error.kind, ExampleError)
        assert str(type_) in error.expected
        return
    assert found.shape == (1, *shape)
    assert found.dtype == dtype
    if dtype == "float32":
        datum = np.float32(datum)
    np.testing.assert_array_equal(found[0], np.asarray(datum))
    if bound is not None and dtype.startswith("int"):
        assert ((found >= 0) & (found < bound)).all()


@given(st.lists(DATA, min_size=1, max_size=4), st.sampled_from(DTYPES))
def test_a_column_is_refused_if_an_item_of_it_is(items, dtype):
    type_ = TensorType((), dtype)

    def refused(data: list[Any]) -> bool:
        try:
            column(data, type_, None)
        except BadDataError:
            return True
        return False

    if any(refused([item]) for item in items):
        assert refused(items)


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


def test_leaves_print_as_they_are_written():
    leaves = [
        fb.Scalar("int32"),
        fb.Vector(3),
        fb.Tensor([2, 3], "bool"),
        fb.InputTransform(len),
        fb.Void(),
    ]
    assert list(map(repr, leaves)) == [
        "Scalar('int32')",
        "Vector(3, 'float32')",
        "Tensor([2, 3], 'bool')",
        "InputTransform(len)",
        "Void()",
    ]
