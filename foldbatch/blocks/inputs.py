"""Gradients of what examples hold: cells compiled once more, to yield those and none of parameters.

Nobody who does not ask for them pays for them.
"""

from __future__ import annotations

from dataclasses import replace

from foldbatch.blocks.active import active_ends
from foldbatch.blocks.lower import Lowered, differentiated
from foldbatch.static.backends import Backend
from foldbatch.static.cell import compile_cell
from foldbatch.static.cellgraph import Ends
from foldbatch.static.graph import Node
from foldbatch.types import TensorType


def with_input_gradients(lowered: Lowered, backend: Backend) -> Lowered:
    """Return the compiled block with cells that yield the gradients of float data, not of parameters."""
    graphs = [cell.graph for cell in lowered.cells]
    reads = [[operand.arena for operand in signature.operands] for signature in lowered.signatures]
    writes = [signature.outputs for signature in lowered.signatures]
    feeds = [frozenset(i for i, x in enumerate(graph.feeds) if x.type.is_float) for graph in graphs]
    actives = active_ends(graphs, reads, writes, [bool(found) for found in feeds])
    cells = []
    for cell, graph, active, found in zip(lowered.cells, graphs, actives, feeds, strict=True):
        ends = Ends(cell.ends.recursive_operands, cell.ends.recursive_outputs, *active, found, trained=False)
        cells.append(compile_cell(graph, ends, backend))
    signatures = tuple(map(differentiated, lowered.signatures, cells))
    return replace(lowered, cells=tuple(cells), signatures=signatures)


def float_reads(lowered: Lowered) -> dict[str, tuple[TensorType, list[list[tuple[int, int]]]]]:
    """Return what of an example is read as floats, by the place and the block that read it.

    With its type, there is a list for every place of the tracing program where it is read: the
    (cell, feed) pairs that hold it, in the order in which the cells are called.
    """
    places: dict[Node, list[tuple[int, int]]] = {}
    found: dict[str, tuple[TensorType, list[list[tuple[int, int]]]]] = {}
    for k, draft in enumerate(lowered.tracer.drafts):
        for i, (node, feed) in enumerate(draft.feeds):
            if node in places:
                places[node].append((k, i))
            elif feed.type.is_float:
                places[node] = [(k, i)]
                found.setdefault(feed.where, (feed.type, []))[1].append(places[node])
    return found
