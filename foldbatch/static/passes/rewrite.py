"""One walk for all rewriting passes: bottom-up, iterative, never behind a graph's inputs; constants folded.

A graph's inputs may be interior nodes of a larger graph. While a pass works they are masked by
fresh inputs (`sealed`), so that no rule can look behind them by mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from foldbatch.static.graph import CONSTANT, INPUT, Graph, Node, apply, constant, input_node, substitute
from foldbatch.static.op import UNBATCHED

Rule = Callable[[Node], Node]


def rewrite(graph: Graph, rule: Rule) -> Graph:
    """Return the graph with every node replaced by the result of `rule` for it.

    `rule` gets a node whose operands are already rewritten, and returns a node of the same type
    and batch axis, or the node itself. A node none of whose operands changed stays the identical
    object; where nothing changes, so does the graph.

    Raises:
        AssertionError: a rule changes a type or an axis.
    """

    def renewed(node: Node, operands: list[Node]) -> Node:
        return rule(rebuilt(node, operands))

    return sealed(graph, lambda inner: rewrite_knowing(inner, renewed))


def sealed(graph: Graph, transform: Callable[[Graph], Graph]) -> Graph:
    """Return the graph after `transform`, which sees no node behind the graph's inputs."""
    interior = [x for x in graph.inputs if x.op is not INPUT]
    if not interior:
        return transform(graph)
    mask = {x: input_node(x.type, x.axis, f"given {x.op.name}") for x in interior}
    unmasked = {mask_: x for x, mask_ in mask.items()}
    inputs = tuple(mask.get(x, x) for x in graph.inputs)
    outputs = transform(Graph(inputs, tuple(substitute(graph.outputs, mask)))).outputs
    outputs = tuple(substitute(outputs, unmasked))
    return graph if outputs == graph.outputs else Graph(graph.inputs, outputs)


def rebuilt(node: Node, operands: Sequence[Node]) -> Node:
    """Return the node's op on other operands of the same types; the node itself on its own."""
    inputs = tuple(operands)
    return node if inputs == node.inputs else apply(node.op.name, *inputs, **node.attrs)


def rewrite_knowing(graph: Graph, rule: Callable[[Node, list[Node]], Node]) -> Graph:
    """Return the graph with every node replaced by the result of `rule` for the node and its new operands.

    `rule` gets the node as it stands in the graph, so that it can look it up, and the rewritten operands. It
    may look behind inputs: use this only where all inputs are input nodes, or in `sealed`.
    """
    new: dict[Node, Node] = {x: x for x in graph.inputs}
    for node in graph.nodes:
        replacement = rule(node, [new[x] for x in node.inputs])
        kept = replacement.type == node.type and replacement.axis is node.axis
        assert kept, f"rewriting {node} gave {replacement}"
        new[node] = replacement
    outputs = tuple(new[node] for node in graph.outputs)
    return graph if outputs == graph.outputs else Graph(graph.inputs, outputs)


MAX_FOLDED = 65_536  # elements: a larger constant costs more memory than it saves time


def fold_constants(graph: Graph) -> Graph:
    """Return the graph with its constant expressions evaluated."""
    return rewrite(graph, fold)


def fold(node: Node) -> Node:
    """Return the value of a node as a constant of its dtype, if all its operands are constants."""
    if not node.inputs or node.axis is not UNBATCHED or node.type.size > MAX_FOLDED:
        return node
    if any(x.op is not CONSTANT for x in node.inputs) or not _in_range(node):
        return node
    values = [x.attrs["value"] for x in node.inputs]
    with np.errstate(all="ignore"):  # an inf or nan is the kernels' to produce as well
        value = node.op.evaluate(node.attrs, *values)
    return constant(np.asarray(value), node.dtype)


def _in_range(node: Node) -> bool:
    """Whether an op's indices are legal; if not, its kernel shall say so when it runs."""
    if node.op.bound is None:
        return True
    place, size = node.op.bound(tuple(x.type for x in node.inputs), node.attrs)
    ids = np.asarray(node.inputs[place].attrs["value"])
    return bool(((ids >= 0) & (ids < size)).all())
