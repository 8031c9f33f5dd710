"""Types: short-hands, equality, text."""

import pickle
import sys
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest

from foldbatch.errors import BlockTypeError
from foldbatch.trees import Tree
from foldbatch.types import (
    OBJECT,
    VOID,
    BroadcastType,
    SequenceType,
    TensorType,
    TupleType,
    as_type,
    describe_value,
    is_masked,
    sequence_of,
    terminals,
)


class Unsized:
    def __len__(self) -> int:
        raise TypeError


SHORT_HANDS = [
    (5, TensorType((5,)), "float32[5]"),
    (np.int64(5), TensorType((5,)), "float32[5]"),
    (np.dtype("int32"), TensorType((), "int32"), "int32"),
    ([2, 3], TensorType((2, 3)), "float32[2,3]"),
    ("int32[2,3]", TensorType((2, 3), "int32"), "int32[2,3]"),
    ([], TensorType(()), "float32"),
    ([2, "int32"], TensorType((2,), "int32"), "int32[2]"),
    (["int64"], TensorType((), "int64"), "int64"),
    ("bool", TensorType((), "bool"), "bool"),
    (
        (5, (None, "int32")),
        TupleType((TensorType((5,)), TupleType((VOID, TensorType((), "int32"))))),
        "(float32[5], (void, int32))",
    ),
    (None, VOID, "void"),
    (OBJECT, OBJECT, "object"),
    ("object", OBJECT, "object"),
    (
        sequence_of((2, "int32")),
        SequenceType(TupleType((TensorType((2,)), TensorType((), "int32")))),
        "[(float32[2], int32), ...]",
    ),
    (SequenceType(TensorType((2,))), SequenceType(TensorType((2,))), "[float32[2], ...]"),
    (BroadcastType(OBJECT), BroadcastType(OBJECT), "repeat(object)"),
    ((3,), TupleType((TensorType((3,)),)), "(float32[3],)"),
]


def test_short_hands_stand_for_types() -> None:
    """And types print as errors show them."""
    for spec, type_, text in SHORT_HANDS:
        assert as_type(spec) == type_
        assert hash(as_type(spec)) == hash(type_)
        assert str(as_type(spec)) == text


@pytest.mark.parametrize("dtype", ["float16", "int8", "complex64", "text", "nonsense", None])
def test_only_five_dtypes_are_known(dtype: Any) -> None:
    """NumPy's names and types of the five will do."""
    with pytest.raises(BlockTypeError, match="a dtype of float32, float64"):
        TensorType((), dtype)
    assert TensorType((), np.float64).dtype == "float64"


def test_extents_are_not_negative() -> None:
    """Zero is an extent."""
    assert TensorType((0, 2)).size == 0
    assert TensorType((2, 3), "float64").nbytes == 48
    with pytest.raises(BlockTypeError, match="0 or more"):
        TensorType((-1,))


def test_terminals_are_in_order() -> None:
    """Void has none; a sequence counts as one."""
    type_ = as_type((1, (None, SequenceType(OBJECT)), OBJECT))
    assert list(terminals(type_)) == [TensorType((1,)), SequenceType(OBJECT), OBJECT]


def test_data_is_described_in_few_words() -> None:
    """However large it is."""
    assert len(describe_value("x" * 10_000)) < 80
    assert describe_value(None) == "None"
    assert describe_value(Tree.from_nested(("S", ("A", "a")))) == "Tree of 1"
    assert describe_value(Unsized()) == "Unsized"
    assert "..." in describe_value({i: i for i in range(100)})
    assert "shape (1000,)" in describe_value(np.zeros(1000))


def test_types_of_types_take_short_hands_and_tuples_take_items_either_way():
    pair = TupleType((TensorType((5,)), TensorType((), "int32")))
    assert TupleType(5, "int32") == TupleType([5, "int32"]) == pair
    assert TupleType() == TupleType(()) == TupleType([])
    assert SequenceType((5, "int32")) == SequenceType(pair)
    assert BroadcastType(None).element == VOID
    assert pickle.loads(pickle.dumps(pair)) == pair


def test_nothing_is_masked_while_another_thread_imports_what_masks() -> None:
    assert is_masked([np.ma.masked_equal([1, 2], 1)])
    with mock.patch.dict(sys.modules, {"numpy.ma": ModuleType("numpy.ma")}):
        assert not is_masked(np.ones(2)) and not is_masked([np.ones(2)])
