"""A forest joins the arrays of trees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from foldbatch.blocks.columnar.forest import Forest
from foldbatch.trees import Tree
from tests.blocks.columnar.forests import batches


@given(examples=batches())
def test_a_forest_says_of_each_node_what_the_node_says(examples):
    forest = Forest(examples)
    nodes = [node for tree in examples for node in tree.nodes()]
    assert forest.size == len(nodes)
    assert [forest.node(i) for i in range(forest.size)] == nodes
    assert (forest.nodes - forest.first + 1).tolist() == [node.size for node in nodes]
    assert forest.arity.tolist() == [len(node) for node in nodes]
    assert forest.leaf.tolist() == [node.is_leaf for node in nodes]
    codes, labels = forest.labels
    assert [labels[code] for code in codes.tolist()] == [node.label for node in nodes]
    chosen = np.arange(0, forest.size, 2)
    for some in (chosen[::-1], forest.nodes):  # the second asks for tokens met before, too
        codes, tokens = forest.tokens(some)
        assert [tokens[code] for code in codes.tolist()] == [nodes[i].token for i in some.tolist()]
    starts, order = forest.children
    below = [order[s : s + n].tolist() for s, n in zip(starts, forest.arity, strict=True)]
    assert [[forest.node(i) for i in some] for some in below] == [node.children for node in nodes]


@pytest.mark.parametrize("labels", [["a", None, 3], [300, -1, 2**70], [1, 0, 255]])
def test_labels_may_be_of_any_kind(labels):
    codes, objects = Forest([Tree([2, 2, -1], labels)]).labels
    assert [objects[code] for code in codes.tolist()] == labels


@pytest.mark.parametrize(
    ("number", "expected"), [(0, 0), (1, 1), (2, 2), (-1, 2), (-3, 0), (3, None), (-4, None)]
)
def test_children_are_counted_as_python_does(number, expected):
    forest = Forest([Tree([3, 3, 3, -1])])
    child = forest.child(np.array([3]), number)
    assert child is None if expected is None else child.tolist() == [expected]
