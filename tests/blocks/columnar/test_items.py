"""Items of trees, lists and dicts, lane by lane."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.blocks.columnar.kinds import ObjectColumn, Refused
from foldbatch.blocks.columnar.reading import items_of, lengths_of, planted, take_item
from foldbatch.trees import Tree

TREE = Tree.from_nested(("S", ("NP", "I"), ("VP", "slept")))


def data(*objects):
    return ObjectColumn(np.arange(len(objects)), objects)


def test_items_of_lists_and_dicts_are_taken():
    taken = take_item(data({"a": [1, 2]}, {"a": [3]}), "a")
    lengths, items = items_of(taken)
    assert lengths.tolist() == [2, 1]
    assert [items.objects[code] for code in items.codes] == [1, 2, 3]
    assert [take_item(data([1], []), 0, (9,)).objects] == [[1, 9]]


def test_trees_become_nodes_of_a_forest():
    nodes = take_item(data((TREE, 1), (TREE, 2)), 0)
    assert nodes.index.tolist() == [2, 5]
    lengths, children = items_of(take_item(nodes, "children"))
    assert (lengths.tolist(), children.index.tolist(), children.depth) == ([2, 2], [0, 1, 3, 4], 1)
    assert lengths_of(nodes).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (lambda: take_item(data([1], []), 0), "without an item"),
        (lambda: take_item(data(np.zeros(3)), 0), "no trees, lists"),
        (lambda: take_item(planted(data(TREE)), "more"), "'more'"),
        (lambda: take_item(planted(data(TREE)), 2), "without an item"),
        (lambda: take_item(np.zeros(1), 0), "reads the item 0"),
        (lambda: lengths_of(data({"a": 1})), "goes through objects"),
        (lambda: lengths_of(np.zeros(1)), "what is no list"),
        (lambda: planted(data(TREE, 1)), "others are not"),
    ],
)
def test_what_has_no_column_is_refused(read, reason):
    with pytest.raises(Refused, match=reason):
        read()
