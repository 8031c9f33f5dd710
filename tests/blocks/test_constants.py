"""Constants, parameters and zeros: the same whatever is read, for every example."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.blocks.constants import FromTensor
from foldbatch.types import OBJECT, VOID, SequenceType, TensorType, TupleType, as_type
from tests.blocks.results import yields

FLOAT = TensorType(())


def test_a_tensor_is_copied_when_it_becomes_a_block():
    array = np.float32([1, 2])
    block = FromTensor(array)
    array[0] = 9
    assert block.eval(None).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("tensor", "dtype"),
    [(1, "int64"), (1.5, "float32"), (True, "bool"), (np.int32(1), "int32"), (np.zeros((2, 0)), "float64")],
)
def test_a_constant_keeps_its_dtype(tensor, dtype):
    assert FromTensor(tensor).eval(None).dtype == dtype


EVERY_TYPE = [
    ("float32", 0.0),
    ([], 0.0),
    (2, [0.0, 0.0]),
    ([2, 1, "int64"], [[0], [0]]),
    ("bool", False),
    (None, None),
    ((), ()),
    ((1, ("int32", None)), ([0.0], (0, None))),
    (SequenceType(FLOAT), []),
    (TupleType((SequenceType(SequenceType(OBJECT)), VOID)), ([], None)),
]


def test_every_type_but_objects_and_broadcasts_has_a_zero():
    for type_, right in EVERY_TYPE:
        yields(fb.Zeros(type_), ("whatever", right), (None, right))
        assert fb.Zeros(type_).output_type == as_type(type_)
        assert fb.Zeros(type_).max_depth("whatever") == 0


def test_zeros_have_the_dtype_asked_for():
    for dtype in ("float64", "int32", "bool"):
        assert fb.Zeros([2, dtype]).eval(None).dtype == dtype
