"""The product that a recursion need not repeat: of an operand and a weight, found in a cell's graphs.

Often one product by a weight is all that a cell makes of what it reads (a Tree-LSTM's gates, of its
children's states). Then the runtime may multiply the rows itself: those known before the recursion all
at once and once each, the others level by level; see `scheduler.hoisting`. For that, kernels are
written once more without the product: they are given it, and leave its cotangent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from foldbatch.params import Parameter
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import PARAMETER, Node, reachable
from foldbatch.static.op import CALL
from foldbatch.static.sides import What

SMALLEST = 64  # numbers of a row: to store and add up the products of shorter ones costs what it saves


@dataclass(frozen=True, slots=True)
class Product:
    """The rows of an operand, side by side, times a weight.

    Attributes:
        operand: its number.
        rows: the node that has them side by side.
        node: the product, ``[N, n]``.
    """

    operand: int
    rows: Node
    node: Node

    @property
    def parameter(self) -> Parameter:
        """The weight."""
        parameter: Parameter = self.node.inputs[1].attrs["parameter"]
        return parameter

    def cotangent(self, results: Sequence[tuple[What, Node]]) -> Node | None:
        """Return the product's cotangent; None if the operand's or the weight's gradient has another source.

        Args:
            results: of the backward graph.
        """
        found = {what: node for what, node in results if self.makes(what)}
        if len(found) < len(self._results) or sum(self.makes(what) for what, _ in results) > len(found):
            return None
        back, gradient = (found[what] for what in self._results)
        while back.op.name == "reshape":
            (back,) = back.inputs
        if back.op.name != "linear" or gradient.op.name != "sum_outer":
            return None
        g, weight = back.inputs
        mine = weight.op.name == "transpose" and weight.inputs == self.node.inputs[1:]
        return g if mine and gradient.inputs == (self.rows, g) and g.type == self.node.type else None

    def makes(self, what: What) -> bool:
        """Whether a result of the backward graph is made from the product's cotangent."""
        return what in self._results

    @property
    def _results(self) -> tuple[What, What]:
        return ("cotangent", self.operand), ("gradient", self.parameter)


def find_product(graph: CellGraph, ends: Ends) -> Product | None:
    """Return the product of a recursive operand of several rows, if nothing else is made of it.

    Args:
        graph: a cell's.
        ends: which operands are recursive.
    """
    readers: dict[Node, list[Node]] = {}
    for node in reachable(graph.results, graph.inputs):
        for x in node.inputs if node not in graph.inputs else ():
            readers.setdefault(x, []).append(node)
    for number in sorted(ends.recursive_operands):
        operand = graph.operands[number]
        rows = _only(readers.get(operand, ()))
        product = _only(readers.get(rows, ())) if rows is not None else None
        if rows is None or product is None or rows.op.name != "reshape" or product.op.name != "linear":
            continue
        fits = operand.axis is CALL and operand.ndim > 1 and rows.ndim == 1 and product.inputs[0] is rows
        large = prod(operand.shape[1:]) >= SMALLEST
        if fits and large and product.inputs[1].op is PARAMETER and rows not in graph.results:
            return Product(number, rows, product)
    return None


def _only(nodes: Sequence[Node]) -> Node | None:
    return nodes[0] if len(nodes) == 1 else None
