"""Constant folding: a node that depends on constants alone is computed once, when the cell is compiled."""

from __future__ import annotations

import numpy as np

from foldbatch.static.graph import CONSTANT, Graph, Node, constant
from foldbatch.static.op import UNBATCHED
from foldbatch.static.passes.rewrite import rewrite

LIMIT = 65_536  # elements: a larger constant costs more memory than it saves time


def fold_constants(graph: Graph) -> Graph:
    """Return the graph with its constant expressions evaluated.

    >>> from foldbatch.static import ops
    >>> from foldbatch.static.graph import input_node
    >>> from foldbatch.static.printer import print_graph
    >>> from foldbatch.types import TensorType
    >>> x = input_node(TensorType((3,)))
    >>> print(print_graph(fold_constants(Graph((x,), (x * ops.exp(constant(0.0)),)))))
    (%0: N float32[3])
    %1: 1 float32 = constant 1.0
    %2: N float32[3] = multiply(%0, %1)
    return (%2)
    """
    return rewrite(graph, fold)


def fold(node: Node) -> Node:
    """Return the value of a node as a constant of its dtype, if all its operands are constants."""
    if not node.inputs or node.axis is not UNBATCHED or node.type.size > LIMIT:
        return node
    if any(x.op is not CONSTANT for x in node.inputs) or not _in_range(node):
        return node
    values = [x.attrs["value"] for x in node.inputs]
    with np.errstate(all="ignore"):  # an inf or nan is the kernels' to produce as well
        value = node.op.evaluate(node.attrs, *values)
    return constant(np.asarray(value), node.dtype)


def _in_range(node: Node) -> bool:
    """Whether an op's indices are legal; if not, its kernel shall say so when it runs."""
    if node.op.bound is None:
        return True
    place, size = node.op.bound(tuple(x.type for x in node.inputs), node.attrs)
    ids = np.asarray(node.inputs[place].attrs["value"])
    return bool(((ids >= 0) & (ids < size)).all())
