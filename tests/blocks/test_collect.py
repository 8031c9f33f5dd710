"""Collecting what all nodes of an example yield, wherever they are."""

from __future__ import annotations

import foldbatch as fb
from foldbatch.types import SequenceType, TensorType, TupleType

ONE = fb.Scalar()
SEEN = fb.blocks.Collect()


def test_types_are_known_once_compiled():
    block = fb.blocks.Collected(fb.Map(ONE >> SEEN))
    right = TupleType((SequenceType(TensorType(())), SequenceType(TensorType(()))))
    assert fb.compile(block).model.result == right
