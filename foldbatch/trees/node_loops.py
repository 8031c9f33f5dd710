"""The nodes of a tree, made by one compiled function of CPython; see `loops.closures`.

Importing this needs llvmlite.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from foldbatch.loops import closures, cpython, list_loops
from foldbatch.loops.closures import (
    ALLOCATE,
    DECREASE,
    FALSE,
    FUNCTION_WORDS,
    INCREASE,
    NEW_INT,
    NEW_LIST,
    TRUE,
)
from foldbatch.loops.cpython import COUNT, DTYPE, FIRST, FLAGS, ITEMS
from foldbatch.loops.cpython import PLAIN as WHOLE_ROWS
from foldbatch.loops.list_loops import append
from foldbatch.loops.words import ask, at, at_i4, i8

# The words of the closure: the class of nodes, the dtype of parents, and the offsets of a node's parts.
NODE, NARROW, TREE_AT, INDEX_AT, LABEL_AT, TOKEN_AT, LEAF_AT, BELOW_AT = range(
    FUNCTION_WORDS, FUNCTION_WORDS + 8
)


def compiled_nodes(node: Any) -> Callable[..., Any] | None:
    """Return a function that makes all nodes of a tree, given a sample node whose parts all differ.

    Return None if the sample's parts cannot be told apart.
    """
    places = cpython.places_of(node, [getattr(node, name) for name in node.__struct_fields__])
    if places is None:
        return None
    words = id(type(node)), id(np.dtype(np.int32)), *places
    return closures.closure(nodes, (sys.modules[__name__], list_loops, closures, cpython), words, type(node))


def set_part(python: Any, obj: int, place: int, part: int) -> None:
    """Set a part of a new object, given the offset of the part in words."""
    ask(python[INCREASE], part)
    at(obj)[place] = part


def nodes(closure: int, arguments: int, count: int) -> int:
    """Make all nodes of a tree; return a new reference to True, to False if parents are no plain int32 array.

    The arguments are the tree, its parents, labels and tokens, and a list with the children of each node,
    which is filled; before, all its items are one empty list, see `trees.tree.linked`.
    """
    python, args = at(at(at(closure)[FIRST])[COUNT]), at(arguments)
    parents, labels, tokens, below = at(args[1]), at(args[2]), at(args[3]), at(at(args[4])[ITEMS])
    answer, size, empty = python[FALSE], labels[COUNT], below[0]
    if parents[FLAGS] & WHOLE_ROWS == WHOLE_ROWS and parents[DTYPE] == python[NARROW]:
        above, answer = at_i4(parents[COUNT]), python[TRUE]
        for i in range(size):
            node, index = ask(python[ALLOCATE], python[NODE], i8(0)), ask(python[NEW_INT], i)
            if node == 0 or index == 0:
                return 0
            at(node)[python[INDEX_AT]] = index
            set_part(python, node, python[TREE_AT], args[0])
            set_part(python, node, python[LABEL_AT], labels[FIRST + i])
            set_part(python, node, python[TOKEN_AT], tokens[FIRST + i])
            set_part(python, node, python[LEAF_AT], python[TRUE] if below[i] == empty else python[FALSE])
            set_part(python, node, python[BELOW_AT], below[i])
            parent = i8(above[i])
            if parent < 0:
                parent = size
            if below[parent] == empty:
                siblings = ask(python[NEW_LIST], i8(0))
                if siblings == 0:
                    return 0
                below[parent] = siblings
                ask(python[DECREASE], empty)
            failed = append(python, below[parent], node)
            ask(python[DECREASE], node)
            if failed != 0:
                return 0
    ask(python[INCREASE], answer)
    return i8(answer)
