"""What the nodes of a cell are called when people read about it: one name each, before and after passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from foldbatch.params import Parameter
from foldbatch.static.cell import Cell
from foldbatch.static.cellgraph import CellGraph
from foldbatch.static.graph import CONSTANT, INPUT, PARAMETER, Graph, Node
from foldbatch.static.printer import constant_name, parameter_name


def whole(graph: CellGraph) -> Graph:
    """Return all that a cell computes as one graph."""
    return Graph(graph.inputs, graph.results)


def name_nodes(cell: Cell, graphs: Iterable[Graph], parameters: Mapping[Parameter, str]) -> dict[Node, str]:
    """Return a name for every node of a cell, and of `graphs`, which may be earlier states of it.

    Operands are ``x0``, data of the example ``f0``, cotangents ``g0``, as in kernels; what is computed is
    ``%0``, numbered from the first graph on. Parameters have the name that `parameters` gives them, else
    their own, and constants are written out, or shown by their shape where they are large.
    """
    names = {node: f"x{i}" for i, node in enumerate(cell.graph.operands)}
    names |= {node: f"f{i}" for i, node in enumerate(cell.graph.feeds)}
    names |= {
        node: node.attrs["name"]
        for node in cell.backward_graph.inputs
        if node.op is INPUT and node not in names
    }
    computed = 0
    parts = (part.graph for part in cell.parts.values())
    for graph in (whole(cell.built), *graphs, whole(cell.graph), cell.backward_graph, *parts):
        for node in graph.nodes:
            if node in names:
                continue
            if node.op is PARAMETER:
                parameter = node.attrs["parameter"]
                names[node] = _unlike(parameters.get(parameter, parameter_name(parameter)), names)
            elif node.op is CONSTANT:
                names[node] = constant_name(node.attrs["value"])
            else:
                names[node] = f"%{computed}"
                computed += 1
    return names


def _unlike(name: str, taken: Mapping[Node, str]) -> str:
    """Return the name with a number where another has it: parameters may well be called alike."""
    known, number, found = set(taken.values()), 0, name
    while found in known:
        number += 1
        found = f"{name}_{number}"
    return found
