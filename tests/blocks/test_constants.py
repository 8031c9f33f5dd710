"""Constants, parameters and zeros: the same whatever is read, for every example."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.blocks.constants import FromTensor, zeros
from foldbatch.errors import BlockTypeError
from foldbatch.types import OBJECT, VOID, BroadcastType, SequenceType, TensorType, TupleType, as_type
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


@pytest.mark.parametrize("part", [OBJECT, BroadcastType(FLOAT)])
def test_what_has_no_zero_is_refused_wherever_it_stands(part):
    for type_ in (part, (2, part), (2, (part, None))):
        with pytest.raises(BlockTypeError, match="Zeros: expected a type that has a zero"):
            fb.Zeros(type_)
    with pytest.raises(BlockTypeError, match=r"here: expected a type that has a zero, found \(object,\)"):
        zeros(TupleType((OBJECT,)), "here")


def test_zeros_have_the_dtype_asked_for():
    for dtype in ("float64", "int32", "bool"):
        assert fb.Zeros([2, dtype]).eval(None).dtype == dtype
