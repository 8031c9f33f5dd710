"""Transformations of graphs: each pass is a function from a legal graph to a legal graph.

`PIPELINE` is the order in which `run` applies them: constants first, since many simplifications
look for a constant. Common subexpressions and dead code need no pass: nodes are interned, and a
graph consists of what its outputs read.
"""

from __future__ import annotations

from foldbatch.static.graph import Graph, verify
from foldbatch.static.passes import attention, rewrite, simplify, stages

PIPELINE = (
    ("fold_constants", rewrite.fold_constants),
    ("simplify", simplify.simplify),
    ("attend", attention.attend),
)

# These also take a function from node to stage, and change what a cell computes per level.
STAGED = (
    ("split_by_stage", stages.split_by_stage),
    ("merge_matmuls", stages.merge_matmuls),
    ("widen", stages.widen),
    ("sum_early", stages.sum_early),
)


def run(graph: Graph, *, check: bool = True) -> Graph:
    """Return the graph after all passes; inputs stay, outputs keep types and axes."""
    for name, transform in PIPELINE:
        graph = transform(graph)
        if check:
            verify(graph, name)
    return graph
