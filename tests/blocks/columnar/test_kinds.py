"""Kinds of columns: some lanes of one, and several made one."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.blocks.columnar.forest import Forest
from foldbatch.blocks.columnar.kinds import ListColumn, NodeColumn, ObjectColumn, Refused, merge, take
from foldbatch.trees import Tree

FOREST = Forest([Tree([2, 2, -1])])


def test_some_lanes_of_lists_are_taken():
    lists = ListColumn(np.array([2, 0, 1]), (np.array([1, 2, 3]),))
    assert take(lists, np.array([2, 0])).items[0].tolist() == [3, 1, 2]


def test_objects_are_merged_by_their_codes():
    data = merge(
        [
            (np.array([1]), ObjectColumn(np.array([0]), ["a"])),
            (np.array([0]), ObjectColumn(np.array([1]), "bc")),
        ],
        2,
    )
    assert [data.objects[code] for code in data.codes] == ["c", "a"]


def test_objects_of_several_kinds_are_no_column():
    nodes = NodeColumn(FOREST, np.array([0]))
    for other in (
        np.array([0]),
        ObjectColumn(np.array([0]), "a"),
        NodeColumn(Forest([]), np.array([0])),
        NodeColumn(FOREST, nodes.index, 1),
    ):
        with pytest.raises(Refused, match="several kinds"):
            merge([(np.array([0]), nodes), (np.array([1]), other)], 2)
