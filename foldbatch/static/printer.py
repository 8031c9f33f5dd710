"""Graphs as text: one line a node, for people, error messages and golden tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain, count

from foldbatch.params.parameters import Array, Parameter
from foldbatch.static.graph import CONSTANT, PARAMETER, SOURCES, Graph, Node
from foldbatch.static.op import Axis

_SHORT = 8  # elements of a constant that are written out


def print_graph(graph: Graph, names: Mapping[Node, str] | None = None) -> str:
    """Return the graph as text: its inputs, a line for every other node, and its outputs.

    Without `names`, nodes are called ``%0 ...`` from the inputs on. The order of lines and the names follow
    from the graph alone, not from what was built before.

    With `names` there are lines for ops only, in the order in which kernels compute them, as the names of
    parameters and constants speak for themselves.

    Args:
        graph: the graph.
        names: the names of all its nodes.

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
    if names is None:
        nodes = _in_order_of_reading(graph)
        names = {node: f"%{i}" for i, node in enumerate(dict.fromkeys((*graph.inputs, *nodes)))}
    else:
        nodes = [node for node in graph.nodes if node.op not in SOURCES]
    header = ", ".join(f"{names[node]}: {node.axis} {node.type}" for node in graph.inputs)
    lines = [f"({header})"]
    lines += [f"{names[node]}: {node.axis} {node.type} = {expression(node, names)}" for node in nodes]
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


def expression(node: Node, names: Mapping[Node, str]) -> str:
    """Return a node as text: a call of its op on nodes that have `names`, a parameter, or a constant."""
    if node.op is PARAMETER:
        return f"parameter {parameter_name(node.attrs['parameter'])}"
    if node.op is CONSTANT:
        return f"constant {constant_name(node.attrs['value']).removeprefix('constant ')}"
    arguments = [*(names[x] for x in node.inputs), *attributes(node.attrs)]
    return f"{node.op.name}({', '.join(arguments)})"


def attributes(attrs: Mapping[str, object]) -> list[str]:
    """Return an op's static arguments as they are written, in the order of their names."""
    return [
        f"{name}={value.name if isinstance(value, Axis) else value}" for name, value in sorted(attrs.items())
    ]


def parameter_name(parameter: Parameter) -> str:
    """Return a parameter's name after that of its owner, if it has one."""
    owner = f"{parameter.owner.name}." if parameter.owner else ""
    return owner + parameter.name


def unlike(name: str, taken: Collection[str]) -> str:
    """Return a name, with a number where it is taken: parameters may well be called alike.

    >>> unlike("w", ("v",)), unlike("w", ("v", "w", "w_1"))
    ('w', 'w_2')
    """
    choices = chain([name], (f"{name}_{number}" for number in count(1)))
    return next(choice for choice in choices if choice not in taken)


def constant_name(value: Array) -> str:
    """Return a small constant as a list, a large one as its shape and the number that fills it.

    >>> import numpy as np
    >>> constant_name(np.array([1.5, 2.0])), constant_name(np.zeros((3, 3)))
    ('[1.5, 2.0]', 'constant of shape (3, 3) filled with 0.0')
    """
    if value.size <= _SHORT:
        return str(value.tolist())
    first = value.flat[0]
    filled = f" filled with {first.item()}" if (value == first).all() else ""
    return f"constant of shape {value.shape}{filled}"
