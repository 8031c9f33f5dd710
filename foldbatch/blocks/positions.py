"""Data that is read by position: an error where it holds more items than are read.

A model that reads the first two children of a node would predict the same whatever the third one is. So a
block that reads an object item by item, from 0 to the last, checks that this was the last. A block that names
one item, as `GetItem` does, says nothing of the others and checks nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldbatch.blocks.builder import Builder
from foldbatch.blocks.tracing import Constant, Limit
from foldbatch.blocks.values import Object
from foldbatch.model.columns import BadDataError
from foldbatch.trees import TreeNode

# What is an order of items. Mappings are read by key, and classes of the user may count something else.
ORDERED = (TreeNode, list, tuple, np.ndarray, Sequence)


def refuse_rest(builder: Builder, source: Object, count: int, where: str) -> None:
    """Add a check to the tracing program that refuses an object of more than `count` items.

    Args:
        builder: writes the program.
        source: the object. One of fewer items is not refused here, but where an item is read.
        count: how many items are read.
        where: names the block, for errors.
    """
    blame = builder.blame(source, _items(count), where=where)
    builder.add(Limit(blame, source.expression, count, REFUSE_REST))


def _refuse(data: object, count: int) -> None:
    if isinstance(data, ORDERED) and len(data) > count:
        fix = "give a block for each, or read them all with Map"
        if isinstance(data, TreeNode):
            fix = "read all children with Map and ChildSumTreeLSTM, or binarise the trees"
            fix += f", or use TreeLSTM(arity={len(data)}) with a Record for each number of children"
        raise BadDataError(_items(count), f"{len(data)}", f"{fix}; Record(..., rest='ignore') drops the rest")


REFUSE_REST = Constant("refuse_rest", _refuse)


def _items(count: int) -> str:
    return "1 item" if count == 1 else f"{count} items"
