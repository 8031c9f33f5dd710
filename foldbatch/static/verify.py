"""The rules of a legal graph, checked after every transformation; a breach is a bug of ours."""

from __future__ import annotations

from foldbatch.errors import GraphError
from foldbatch.static.graph import INPUT, SOURCES, Graph, Node, reachable
from foldbatch.static.op import UNBATCHED, Axis
from foldbatch.types import TensorType


def verify(graph: Graph, where: str = "graph") -> Graph:
    """Return the graph, having checked that it is whole and well typed.

    Raises:
        AssertionError: an input is missing or given twice, or a node's type or axis is not what
            its rule yields; the message names `where` (the pass) and prints the graph.
    """
    assert len(set(graph.inputs)) == len(graph.inputs), f"{where}: an input is given twice"
    given = set(graph.inputs)
    for node in reachable(graph.outputs, graph.inputs):
        if node in given:
            continue
        assert node.op is not INPUT, f"{where}: {node} is read but not an input of\n{_text(graph)}"
        if node.op in SOURCES:
            continue
        try:
            type_, axis = _infer(node)
        except GraphError as error:
            raise AssertionError(f"{where}: {error}, in\n{_text(graph)}") from error
        name = f"{where}: {node.op.name}"
        assert type_ == node.type, f"{name} yields {type_}, not {node.type}, in\n{_text(graph)}"
        assert axis is node.axis, f"{name} runs along {axis}, not {node.axis}, in\n{_text(graph)}"
        assert all(x.number < node.number for x in node.inputs), f"{where}: {node} precedes its operands"
    return graph


def _infer(node: Node) -> tuple[TensorType, Axis]:
    """Return the node's type and axis according to the rules of its op."""
    axes = tuple(x.axis for x in node.inputs)
    type_ = node.op.infer(tuple(x.type for x in node.inputs), node.attrs)
    if node.op.axis:
        return type_, node.op.axis(axes, node.attrs)
    batched = {axis for axis in axes if axis is not UNBATCHED}
    assert len(batched) <= 1, f"{node.op.name} mixes the axes {sorted(map(str, batched))}"
    if node.op.elementwise:
        ranks = {x.ndim for x in node.inputs if x.axis is not UNBATCHED}
        alike = not batched or ranks == {len(type_.shape)}
        assert alike, f"{node.op.name} has batched operands of ranks {ranks}"
    return type_, batched.pop() if batched else UNBATCHED


def _text(graph: Graph) -> str:
    return f"{len(graph.nodes)} nodes to {[str(node.type) for node in graph.outputs]}"
