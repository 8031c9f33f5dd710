"""Columns hold what NumPy would read as the declared type, or are refused with the item to blame."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from foldbatch.errors import ExampleError
from foldbatch.model.columns import BadDataError, column
from foldbatch.types import DTYPES, TensorType

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


@given(
    st.sampled_from([(dtype, "") for dtype in DTYPES] + [("int32", "int8"), ("int32", "uint16")]),
    st.sampled_from([(), (2,), (1, 2)]),
    DATA | st.sampled_from([-129, -128, 127, 128, 65535, 65536, [127, -128]]),
    st.none() | st.integers(1, 3),
)
def test_a_column_holds_what_numpy_would_read_or_is_refused(dtypes, shape, datum, bound):
    """One wrong datum is refused; one that is read means the same in Python."""
    dtype, declared = dtypes
    type_ = TensorType(shape, dtype)
    try:
        found = column([datum], type_, bound if dtype.startswith("int") else None, declared)
    except BadDataError as error:
        assert issubclass(error.kind, ExampleError)
        assert str(type_).replace(dtype, declared or dtype) in error.expected
        return
    assert found.shape == (1, *shape)
    assert found.dtype == dtype
    if dtype == "float32":
        datum = np.float32(datum)
    if declared in ("int8", "uint16"):
        assert np.asarray(datum).astype(declared).tolist() == np.asarray(datum).tolist()
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


def test_nothing_to_read_is_an_empty_column():
    """Whatever NumPy takes an empty list for."""
    assert column([[], []], TensorType((0,), "int32")).dtype == "int32"
    assert column([], TensorType((2,), "int32")).shape == (0, 2)
