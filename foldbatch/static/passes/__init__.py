"""Transformations of graphs: each pass is a function from a legal graph to a legal graph.

`PIPELINE` is the order in which `run` applies them: constants first, since many simplifications
look for a constant. Common subexpressions and dead code need no pass: nodes are interned, and a
graph consists of what its outputs read.
"""

from __future__ import annotations

from functools import partial

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
    return rewrite.sealed(graph, partial(_run, check=check))  # once for all passes


def _run(graph: Graph, *, check: bool) -> Graph:
    for name, transform in PIPELINE:
        before, graph = graph, transform(graph)
        if check and (graph is not before or name == PIPELINE[-1][0]):
            verify(graph, name)
    return graph
