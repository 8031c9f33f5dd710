"""Collecting what all nodes of an example yield, wherever they are."""

from __future__ import annotations

from typing import Any

import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError
from foldbatch.types import SequenceType, TensorType, TupleType
from tests.blocks.results import yields

ONE = fb.Scalar()
TWICE = fb.Function(lambda x: 2 * x)
ADD = fb.Function(lambda a, b: a + b)
SEEN = fb.blocks.Collect()


def is_list(x: Any) -> bool:
    return isinstance(x, list)


def a_tree(leaf: fb.Block, join: fb.Block, of: Any = "float32") -> fb.Block:
    tree = fb.ForwardDeclaration(output_type=of, name="tree")
    node = fb.OneOf(is_list, {False: leaf, True: fb.Map(tree()) >> fb.Reduce(join)})
    tree.resolve_to(node >> SEEN)
    return tree()


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


def test_what_does_not_fit_is_refused():
    for block, match in [
        (fb.blocks.Collected(ONE), "expected a Collect in the block, found none"),
        (fb.blocks.Collected(ONE >> SEEN, "b"), r"put Collect\('b'\) behind"),
        (
            fb.blocks.Collected(fb.AllOf(ONE >> SEEN, fb.Scalar("int32") >> SEEN)),
            "found int32; use another name",
        ),
        (fb.blocks.Collected(fb.Identity() >> SEEN), "expected tensors, found object"),
    ]:
        with pytest.raises(BlockTypeError, match=match):
            fb.compile(block)
    with pytest.raises(BlockTypeError, match="expected tensors, found void"):
        fb.Void() >> SEEN
