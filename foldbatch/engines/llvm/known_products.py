"""The product that a recursion need not repeat: of an operand and a weight, found in a cell's graphs.

Many cells multiply what they read by a weight: a Tree-LSTM's gates are made of its children's states so.
`find_product` finds such a product in what a cell computes forward, `Product.derivative` what is made of it
backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from foldbatch.params.parameters import Parameter
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import PARAMETER, Node, reachable
from foldbatch.static.op import CALL
from foldbatch.static.routines import What

SMALLEST = 64  # numbers of a row: to store and add up the products of shorter ones costs what it saves

Results = Sequence[tuple[What, Node]]  # of a stage or a direction: what each is, and its node


@dataclass(frozen=True, slots=True)
class KnownProduct:
    """The rows of an operand, side by side, times a weight.

    Attributes:
        operand: the operand's number.
        rows: the node that has them side by side, ``[N, width * k]``.
        node: the product, ``[N, n]``.
    """

    operand: int
    rows: Node
    node: Node

    @property
    def parameter(self) -> Parameter:
        """The weight, ``[width * k, n]``."""
        parameter: Parameter = self.node.inputs[1].attrs["parameter"]
        return parameter

    def derivative(self, results: Results) -> Derivative | None:
        """Return how the operand's and the weight's gradients follow from the product; None if not simply.

        Args:
            results: of the backward direction.
        """
        wanted = ("cotangent", self.operand), ("gradient", self.parameter)
        nodes = [node for what in wanted for other, node in results if other == what]
        if len(nodes) != len(wanted):
            return None
        back, gradient = nodes
        terms = back.inputs if back.op.name == "add" and len(back.inputs) == 2 else (back,)
        for i, term in enumerate(terms):
            g = self._behind(term)
            if g is not None and gradient.op.name == "sum_outer" and gradient.inputs == (self.rows, g):
                rest = terms[1 - i] if len(terms) > 1 else None
                return Derivative(*wanted, g, rest) if rest is None or rest.type == back.type else None
        return None

    def _behind(self, node: Node) -> Node | None:
        """Return what is multiplied by the transposed weight to yield a node, if that is all it is."""
        while node.op.name == "reshape":
            (node,) = node.inputs
        if node.op.name != "linear":
            return None
        g, weight = node.inputs
        transposed = weight.op.name == "transpose" and weight.inputs == self.node.inputs[1:]
        return g if transposed and g.type == self.node.type else None


@dataclass(frozen=True, slots=True)
class Derivative:
    """The gradients that follow from a product.

    Attributes:
        what: the result of the backward direction that is the operand's cotangent.
        gradient: the result that is the weight's gradient.
        cotangent: the product's cotangent, of which both are made.
        rest: what else is added to the operand's cotangent, or None.
    """

    what: What
    gradient: What
    cotangent: Node
    rest: Node | None

    def without(self, results: Results) -> tuple[tuple[What, Node], ...]:
        """Return what is left of a stage's results without what is made of the product's cotangent."""
        left = [pair for pair in results if pair[0] not in (self.what, self.gradient)]
        if self.rest is not None and any(what == self.what for what, _ in results):
            left.append((self.what, self.rest))
        return tuple(left)


def find_product(graph: CellGraph, ends: Ends) -> KnownProduct | None:
    """Return the product of a recursive operand's rows, side by side, by a weight, if there is one.

    Args:
        graph: what a cell computes forward, after all passes.
        ends: which operands are recursive.
    """
    readers: dict[Node, list[Node]] = {}
    for node in reachable(graph.results, graph.inputs):
        for x in node.inputs if node not in graph.inputs else ():
            readers.setdefault(x, []).append(node)
    for number in sorted(ends.recursive_operands):
        operand = graph.operands[number]
        if operand.axis is not CALL or operand.ndim < 2 or prod(operand.shape[1:]) < SMALLEST:
            continue
        for rows in readers.get(operand, []):
            last = readers.get(rows, [])
            if len(last) != 1 or rows in graph.results or rows.op.name != "reshape" or rows.ndim != 1:
                continue
            (product,) = last
            multiplies = product.op.name == "linear" and product.inputs[0] is rows
            if multiplies and product.inputs[1].op is PARAMETER:
                return KnownProduct(number, rows, product)
    return None
