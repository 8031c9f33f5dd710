"""The nodes of a tree, made by one compiled function of CPython; see `loops.closures`.

Importing this needs llvmlite.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from foldbatch.loops import closures, cpython, list_loops
from foldbatch.loops.closures import Closure
from foldbatch.loops.cpython import COUNT, DTYPE, FIRST, FLAGS, ITEMS
from foldbatch.loops.cpython import PLAIN as WHOLE_ROWS
from foldbatch.loops.list_loops import append
from foldbatch.loops.words import ask, at, at_i4, i8


class Nodes(Closure):
    """The words of the closure."""

    node_class: int
    int32_dtype: int  # of parents
    tree_at: int  # the offsets of a node's parts, in words
    index_at: int
    label_at: int
    token_at: int
    leaf_at: int
    below_at: int


def compiled_nodes(node: Any) -> Callable[..., object] | None:
    """Return a function that makes all nodes of a tree, given a sample node whose parts all differ.

    Return None if the sample's parts cannot be told apart.
    """
    places = cpython.places_of(node, [getattr(node, name) for name in node.__struct_fields__])
    if places is None:
        return None
    words = id(type(node)), id(np.dtype(np.int32)), *places
    return closures.closure(nodes, (sys.modules[__name__], list_loops, closures, cpython), words, type(node))


def set_part(python: Nodes, obj: int, place: int, part: int) -> None:
    """Set a part of a new object, given the offset of the part in words."""
    ask(python.increase, part)
    at(obj)[place] = part


def nodes(closure: int, arguments: int, count: int) -> int:
    """Make all nodes of a tree; return a new reference to True, to False if parents are no plain int32 array.

    The arguments are the tree, its parents, labels and tokens, and a list with the children of each node,
    which is filled; before, all its items are one empty list, see `trees.tree.linked`.
    """
    words, args = at(at(at(closure)[FIRST])[COUNT]), at(arguments)
    python = Nodes(words)
    parents, labels, tokens, below = at(args[1]), at(args[2]), at(args[3]), at(at(args[4])[ITEMS])
    answer, size, empty = python.false, labels[COUNT], below[0]
    if parents[FLAGS] & WHOLE_ROWS == WHOLE_ROWS and parents[DTYPE] == python.int32_dtype:
        above, answer = at_i4(parents[COUNT]), python.true
        for i in range(size):
            node, index = ask(python.allocate, python.node_class, i8(0)), ask(python.new_int, i)
            if node == 0 or index == 0:
                return 0
            at(node)[python.index_at] = index
            set_part(python, node, python.tree_at, args[0])
            set_part(python, node, python.label_at, labels[FIRST + i])
            set_part(python, node, python.token_at, tokens[FIRST + i])
            set_part(python, node, python.leaf_at, python.true if below[i] == empty else python.false)
            set_part(python, node, python.below_at, below[i])
            parent = i8(above[i])
            if parent < 0:
                parent = size
            if below[parent] == empty:
                siblings = ask(python.new_list, i8(0))
                if siblings == 0:
                    return 0
                below[parent] = siblings
                ask(python.decrease, empty)
            failed = append(python, below[parent], node)
            ask(python.decrease, node)
            if failed != 0:
                return 0
    ask(python.increase, answer)
    return i8(answer)
