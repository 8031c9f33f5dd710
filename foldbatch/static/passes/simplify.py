"""Algebraic simplification: a table of small rules by op name, applied until none fits."""

from __future__ import annotations

from collections.abc import Callable

from foldbatch.static.graph import Graph, Node
from foldbatch.static.passes import arithmetic, movement, sums
from foldbatch.static.passes.fold_constants import fold
from foldbatch.static.passes.rewrite import rewrite, sealed

Simplification = Callable[[Node], Node | None]

RULES: dict[str, tuple[Simplification, ...]] = {
    "add": (arithmetic.sum_of_one, arithmetic.constants_joined, arithmetic.plus_zero, sums.pads_joined),
    "subtract": (arithmetic.minus_zero,),
    "multiply": (arithmetic.times_one,),
    "divide": (arithmetic.divided_by_one,),
    "negative": (arithmetic.negative_twice,),
    "where": (arithmetic.known_condition,),
    "cast": (arithmetic.same_cast,),
    "sum": (arithmetic.sum_over_one,),
    "repeat": (arithmetic.repeated_batch,),
    "reshape": (movement.same_shape, movement.again),
    "broadcast_to": (movement.same_shape, movement.again),
    "transpose": (movement.same_order, movement.transposed_twice),
    "slice": (
        movement.full_slice,
        movement.slice_of_slice,
        movement.slice_of_concat,
        movement.slice_of_stack,
        movement.slice_of_pad,
    ),
    "pad": (movement.pad_of_pad,),
    "concat": (movement.concat_of_one, movement.adjacent_slices),
}

# Every rule makes a graph smaller or an op cheaper, so these bounds are never met; they turn a
# mistake in a rule into a poor graph rather than a hang.
_ROUNDS = 100
_STEPS = 100


def simplify(graph: Graph) -> Graph:
    """Return the graph simplified: fewer nodes, less to read and write, the same values.

    Values are equal up to the order of floating-point sums. An operand of a rule that becomes
    constant on the way is folded.

    >>> from foldbatch.static import ops
    >>> from foldbatch.static.graph import input_node
    >>> from foldbatch.static.printer import print_graph
    >>> from foldbatch.types import TensorType
    >>> x = input_node(TensorType((4,)))
    >>> print(print_graph(simplify(Graph((x,), (ops.concat([x[:2] * 1, x[2:] + 0]),)))))
    (%0: N float32[4])
    return (%0)
    """
    return sealed(graph, _simplified)


def _simplified(graph: Graph) -> Graph:
    for _ in range(_ROUNDS):
        simpler = rewrite(sums.flatten_sums(graph), simplify_node)
        if simpler.outputs == graph.outputs:
            break
        graph = simpler
    return graph


def simplify_node(node: Node) -> Node:
    """Return a node equal to `node` that no rule can simplify any more."""
    for _ in range(_STEPS):
        simpler = _once(node)
        if simpler is node:
            break
        node = simpler
    return node


def _once(node: Node) -> Node:
    folded = fold(node)
    if folded is not node:
        return folded
    for rule in _rules(node):
        simpler = rule(node)
        if simpler is not None:
            return simpler
    return node


def _rules(node: Node) -> tuple[Simplification, ...]:
    rules = RULES.get(node.op.name, ())
    if node.op.elementwise:
        rules += (arithmetic.without_spreading,)
    # an op with an axis rule of its own may count rows
    return rules if node.op.axis else (*rules, arithmetic.batched_last)
