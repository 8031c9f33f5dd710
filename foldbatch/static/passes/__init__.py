"""Transformations of graphs: each pass is a function from a legal graph to a legal graph.

`PIPELINE` is the order in which `run` applies them: constants first, since many simplifications
look for a constant. Common subexpressions and dead code need no pass: nodes are interned, and a
graph consists of what its outputs read.
"""

from __future__ import annotations

from foldbatch.static.graph import Graph
from foldbatch.static.passes import early, fold_constants, matmuls, simplify, widen
from foldbatch.static.verify import verify

PIPELINE = (
    ("fold_constants", fold_constants.fold_constants),
    ("simplify", simplify.simplify),
)

# These also take a function from node to stage, and change what a cell computes per level.
STAGED = (
    ("split_by_stage", matmuls.split_by_stage),
    ("merge_matmuls", matmuls.merge_matmuls),
    ("widen", widen.widen),
    ("sum_early", early.sum_early),
)


def run(graph: Graph, *, check: bool = True) -> Graph:
    """Return the graph after all passes.

    Args:
        graph: what to transform; its inputs stay, its outputs keep their types and axes.
        check: whether to verify the graph after each pass.
    """
    for name, transform in PIPELINE:
        graph = transform(graph)
        if check:
            verify(graph, name)
    return graph
