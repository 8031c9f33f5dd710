"""Names for the nodes of a cell, to be read by people: one name each, before and after passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from foldbatch.params import Parameter
from foldbatch.static.cell import Cell
from foldbatch.static.cellgraph import CellGraph
from foldbatch.static.graph import CONSTANT, PARAMETER, Graph, Node
from foldbatch.static.printer import constant_name, parameter_name, unlike


def joined(graph: CellGraph) -> Graph:
    """Return the graph of all results of a cell: outputs, losses and metrics joined."""
    return Graph(graph.inputs, graph.results)


def name_nodes(cell: Cell, graphs: Iterable[Graph], parameters: Mapping[Parameter, str]) -> dict[Node, str]:
    """Return a name for every node of a cell, and of `graphs`, which may be earlier states of it.

    Operands are ``x0``, data of the example ``f0``, cotangents ``g0``, as in routines; what is computed is
    ``%0``, numbered from the first graph on. Parameters have the name that `parameters` gives them, else
    their own, and constants are written out, or shown by their shape where they are large.
    """
    names = {node: f"x{i}" for i, node in enumerate(cell.graph.operands)}
    names |= {node: f"f{i}" for i, node in enumerate(cell.graph.feeds)}
    stages = [
        stage
        for phase in (cell.training, cell.inference)
        for direction in (phase.forward, phase.backward)
        for stage in direction.values()
    ]
    names |= {
        node: f"g{key}"
        for stage in stages
        for node, (kind, key) in stage.given.items()
        if kind == "cotangent"
    }
    computed = 0
    staged = (stage.graph for stage in stages)
    for graph in (joined(cell.built), *graphs, joined(cell.graph), cell.backward_graph, *staged):
        for node in graph.nodes:
            if node in names:
                continue
            if node.op is PARAMETER:
                parameter = node.attrs["parameter"]
                names[node] = unlike(
                    parameters.get(parameter, parameter_name(parameter)), set(names.values())
                )
            elif node.op is CONSTANT:
                names[node] = constant_name(node.attrs["value"])
            else:
                names[node] = f"%{computed}"
                computed += 1
    return names
