"""Joining the calls of several statements into one record."""

from __future__ import annotations

import foldbatch as fb
from foldbatch.blocks.purity import pure
from foldbatch.trees import Tree
from tests.blocks.columnar.laws import check_same, refusal

TREES = [Tree([1, -1], [2, 1], ["a", "b"]), Tree.leaf(3, "a")]


def test_a_function_called_in_several_places_has_its_calls_in_order():
    shared = fb.ForwardDeclaration(output_type=2, name="shared")
    shared.resolve_to(fb.GetItem("label") >> fb.Scalar("int32") >> fb.Embedding(9, 2))
    both = fb.AllOf(shared(), fb.Map(shared()), shared() >> fb.Metric("label"))
    check_same(both, TREES)


def test_labels_keep_their_kinds():
    label = fb.InputTransform(pure(lambda t: (1, True, 1.0)[t.label - 1]))
    check_same(fb.AllOf(fb.Zeros(2), label) >> fb.Metric("m"), TREES)


def test_numbers_of_several_kinds_are_left_to_the_program():
    block = fb.InputTransform(pure(lambda t: t.label if t.label > 1 else 0.5)) >> fb.Scalar()
    assert "several kinds" in refusal(block, TREES)
    check_same(block, TREES[1:])


def test_nodes_are_no_results():
    assert "returns a node" in refusal(fb.Map(fb.Identity()), TREES)
