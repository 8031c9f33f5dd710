"""One graph for training and one for inference: every ``when_training`` is settled."""

from __future__ import annotations

from foldbatch.static.graph import Graph, Node
from foldbatch.static.passes.arithmetic import in_place_of
from foldbatch.static.passes.rewrite import rewrite


def in_phase(graph: Graph, *, training: bool) -> Graph:
    """Return the graph with every ``when_training(a, b)`` replaced by a, or by b in inference.

    A graph without any is returned itself.

    >>> from foldbatch.static import ops
    >>> from foldbatch.static.graph import input_node
    >>> from foldbatch.static.printer import print_graph
    >>> from foldbatch.types import TensorType
    >>> x = input_node(TensorType((3,)))
    >>> print(print_graph(in_phase(Graph((x,), (ops.when_training(ops.tanh(x), x),)), training=False)))
    (%0: N float32[3])
    return (%0)
    """

    def settled(node: Node) -> Node:
        if node.op.name != "when_training":
            return node
        chosen = in_place_of(node, node.inputs[0 if training else 1])
        assert chosen is not None, f"{node} has operands of other types"
        return chosen

    return rewrite(graph, settled)
