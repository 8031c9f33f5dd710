"""Recursions that columns do not follow are refused when a model is compiled."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.blocks.columnar import statements
from foldbatch.trees import Tree
from tests.blocks.columnar.laws import check_same, refusal, why_not
from tests.blocks.columnar.test_columns import ADD, LEAF, declared, row

LABEL = fb.GetItem("label")


def even_and_odd():
    even, odd = (fb.ForwardDeclaration(output_type=2, name=name) for name in ("even", "odd"))
    for one, other in ((even, odd), (odd, even)):
        one.resolve_to(fb.AllOf(LEAF_ROW, fb.Map(other()) >> fb.Sum()) >> ADD)
    return even()


LEAF_ROW = LABEL >> row()
INNER = declared(lambda tree: fb.Map(tree) >> fb.Sum())
OF_OBJECTS = fb.ForwardDeclaration(output_type=fb.types.OBJECT, name="of objects")
OF_OBJECTS.resolve_to(fb.OneOf(LEAF, {True: LABEL, False: fb.GetItem(0) >> OF_OBJECTS()}))


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (even_and_odd(), "calls another one"),
        (
            declared(lambda tree: fb.AllOf(INNER, fb.Map(tree) >> fb.Sum()) >> ADD),
            "calls another one",
        ),
        (
            declared(
                lambda tree: fb.OneOf(LEAF, {True: LEAF_ROW, False: fb.GetItem(0) >> fb.GetItem(0) >> tree})
            ),
            "no child",
        ),
        (OF_OBJECTS(), "returns an object"),
    ],
)
def test_recursions_of_another_form_are_refused(block, reason):
    assert reason in why_not(block)


@pytest.mark.parametrize(
    "block",
    [
        declared(lambda tree: fb.OneOf(LEAF, {True: LEAF_ROW, False: fb.GetItem(0) >> tree})),
        fb.Map(INNER),
        declared(
            lambda tree: fb.OneOf(
                LEAF, {True: LEAF_ROW, False: fb.AllOf(*[fb.GetItem(0) >> tree] * 2) >> ADD}
            )
        ),
    ],
)
def test_trees_whose_nodes_are_not_each_visited_once_are_left_to_the_program(block):
    assert "each node once" in refusal(block, [Tree([2, 2, -1], [1, 1, 1])])


def test_a_tree_that_may_be_too_deep_is_left_to_the_program(monkeypatch):
    monkeypatch.setattr(statements, "MOST_NODES", 2)
    assert "deeper" in refusal(INNER, [Tree([2, 2, -1])])


def test_objects_that_a_memo_looks_up_are_left_to_the_program():
    once = fb.ForwardDeclaration(output_type=2, name="once", memo=True)
    once.resolve_to(LEAF_ROW)
    part = {"label": 1}
    assert "several places" in refusal(fb.Map(once()), [[part, part]])
    check_same(fb.Map(once()), [Tree([2, 2, -1], [1, 1, 1])])
