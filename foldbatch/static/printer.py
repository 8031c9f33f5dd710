"""Graphs as text: one line a node, for people, error messages and golden tests."""

from __future__ import annotations

from foldbatch.params import Array
from foldbatch.static.graph import CONSTANT, PARAMETER, Graph, Node
from foldbatch.static.op import Axis

_SHORT = 8  # elements of a constant that are written out


def print_graph(graph: Graph) -> str:
    """Return the graph as text; inputs are ``%0 ...``, in order.

    The order of lines and the names follow from the graph alone, not from what was built before.

    >>> from foldbatch.static import ops
    >>> from foldbatch.static.graph import input_node
    >>> from foldbatch.types import TensorType
    >>> x = input_node(TensorType((3,)))
    >>> print(print_graph(Graph((x,), (ops.tanh(x) * 2,))))
    (%0: N float32[3])
    %1: N float32[3] = tanh(%0)
    %2: 1 float32 = constant 2.0
    %3: N float32[3] = multiply(%1, %2)
    return (%3)
    """
    names: dict[Node, str] = {}
    nodes = _in_order_of_reading(graph)
    for node in (*graph.inputs, *nodes):
        names.setdefault(node, f"%{len(names)}")
    header = ", ".join(f"{names[node]}: {node.axis} {node.type}" for node in graph.inputs)
    lines = [f"({header})"]
    lines += [f"{names[node]}: {node.axis} {node.type} = {_expression(node, names)}" for node in nodes]
    lines.append(f"return ({', '.join(names[node] for node in graph.outputs)})")
    return "\n".join(lines)


def _in_order_of_reading(graph: Graph) -> list[Node]:
    """Return the graph's nodes, each after its operands, from the first output to the last."""
    done = set(graph.inputs)
    nodes: list[Node] = []
    stack = list(reversed(graph.outputs))
    while stack:
        node = stack[-1]
        waiting = [x for x in node.inputs if x not in done] if node not in done else []
        stack.extend(reversed(waiting))
        if not waiting:
            stack.pop()
            if node not in done:
                done.add(node)
                nodes.append(node)
    return nodes


def _expression(node: Node, names: dict[Node, str]) -> str:
    if node.op is PARAMETER:
        parameter = node.attrs["parameter"]
        owner = f"{parameter.owner.name}." if parameter.owner else ""
        return f"parameter {owner}{parameter.name}"
    if node.op is CONSTANT:
        return _constant(node.attrs["value"])
    arguments = [names[x] for x in node.inputs]
    arguments += [f"{name}={_attribute(node.attrs[name])}" for name in sorted(node.attrs)]
    return f"{node.op.name}({', '.join(arguments)})"


def _constant(value: Array) -> str:
    """Show a small constant as a list, a large one by its shape and what it is filled with."""
    if value.size <= _SHORT:
        return f"constant {value.tolist()}"
    first = value.flat[0]
    filled = f" filled with {first.item()}" if (value == first).all() else ""
    return f"constant of shape {value.shape}{filled}"


def _attribute(value: object) -> str:
    return value.name if isinstance(value, Axis) else str(value)
