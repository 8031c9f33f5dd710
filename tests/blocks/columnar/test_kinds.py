"""Kinds of columns: some lanes of one, and several made one."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.blocks.columnar.forest import Forest
from foldbatch.blocks.columnar.kinds import NodeColumn, ObjectColumn, Refused, merge
from foldbatch.trees import Tree

FOREST = Forest([Tree([2, 2, -1])])


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
