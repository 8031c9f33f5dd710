"""Collecting what all nodes of an example yield, wherever they are."""

from __future__ import annotations

import foldbatch as fb
from foldbatch.types import SequenceType, TensorType, TupleType
from tests.blocks.results import yields

ONE = fb.Scalar()
TWICE = fb.Function(lambda x: 2 * x)
SEEN = fb.blocks.Collect()


def test_nothing_collected_is_an_empty_sequence():
    yields(fb.blocks.Collected(fb.Map(ONE >> SEEN)), ([], ([], [])), ([1], ([1.0], [1.0])))
    sometimes = fb.blocks.Collected(fb.OneOf(len, {1: fb.GetItem(0) >> ONE >> SEEN, 0: fb.Zeros([])}))
    yields(sometimes, ([], (0.0, [])), ([3], (3.0, [3.0])))


def test_collections_have_names():
    block = fb.blocks.Collected(
        fb.blocks.Collected(ONE >> fb.blocks.Collect("a") >> TWICE >> fb.blocks.Collect("b"), "a"), "b"
    )
    yields(block, (1, ((2.0, [1.0]), [2.0])))


def test_a_collection_inside_another_of_its_name_takes_its_own():
    inner = fb.blocks.Collected(fb.Map(ONE >> SEEN)) >> fb.GetItem(1) >> fb.Sum()
    block = fb.blocks.Collected(fb.Map(inner >> SEEN))
    yields(block, ([[1, 2], [], [3]], ([3.0, 0.0, 3.0], [3.0, 0.0, 3.0])))


def test_types_are_known_once_compiled():
    block = fb.blocks.Collected(fb.Map(ONE >> SEEN))
    right = TupleType((SequenceType(TensorType(())), SequenceType(TensorType(()))))
    assert fb.compile(block).model.result == right
