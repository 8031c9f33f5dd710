"""Attention: sums of products of a call's row with elements, or of elements with a number each, as one op.

``sum(repeat(q) * x)`` is ``segment_dot(x, q)``, and ``segment_sum(a * x)`` is ``segment_mix(a, x)``. A weight
that makes x of elements moves to the side of the call: ``q . (x W + b)`` is ``(q W') . x + q . b``, and the
sum of ``a (x W + b)`` is ``(sum of a x) W + (sum of a) b``. So keys and values are never computed, for each
of the calls to which a list is given anew; a call has one row, and its list has many.

Source: products of matrices are associative; "absorbed" projections: DeepSeek-AI 2024, DeepSeek-V2, 2.1.3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from foldbatch.static.graph import Graph, Node, apply, slice_of
from foldbatch.static.op import UNBATCHED
from foldbatch.static.ops.reduce import TOTAL
from foldbatch.static.passes.rewrite import rebuilt, rewrite_knowing, sealed
from foldbatch.static.passes.simplify import simplify_node

MIN_HEAD_COLUMNS = 8  # columns of a head: with fewer, a product with all columns of its weight costs less


def attend(graph: Graph) -> Graph:
    """Return the graph with such sums as one op each; the same graph where there are none.

    >>> from foldbatch.static import ops
    >>> from foldbatch.static.graph import input_node
    >>> from foldbatch.static.op import ragged
    >>> from foldbatch.static.printer import print_graph
    >>> from foldbatch.types import TensorType
    >>> q, xs = input_node(TensorType((3,))), input_node(TensorType((3,)), ragged("xs"))
    >>> print(print_graph(attend(Graph((q, xs), (ops.sum(q * xs),)))))
    (%0: N float32[3], %1: xs float32[3])
    %2: xs float32 = segment_dot(%1, %0)
    return (%2)
    """
    return sealed(graph, _attended)


Products: TypeAlias = "Sequence[tuple[Node, Node | None]]"  # elements, and their weights, if they have any


@dataclass(frozen=True, slots=True)
class _SumOfProducts:
    """A sum of products of elements and numbers."""

    product: Node  # what is summed
    number: int  # which of its operands are the elements


def _attended(graph: Graph) -> Graph:
    """Return the graph with sums of products as one op each; see `attend`."""
    readers: dict[Node, list[Node | None]] = defaultdict(list)
    for node in graph.nodes:
        for x in node.inputs:
            readers[x].append(node)
    for node in graph.outputs:
        readers[node].append(None)
    sums = dict[Node, _SumOfProducts]()
    for node in graph.nodes:
        if (match := _sum_of_products(node)) is not None and readers[match.product] == [node]:
            sums[node] = match
    products = {match.product for match in sums.values()}

    def alone(x: Node) -> bool:
        return all(
            y in products or (y is not None and y.op.view == "in order" and alone(y)) for y in readers[x]
        )

    def moves(x: Node) -> bool:
        while x.op.view == "in order":
            (x,) = x.inputs
        parts = [y for y in x.inputs if y.op.name == "linear"] if x.op.name == "add" else []
        return alone(x) and all(len(readers[y]) == 1 for y in parts)

    def attended(node: Node, operands: list[Node]) -> Node:
        """Return a node on new operands; a sum of products becomes `segment_dot` or `segment_mix`."""
        match = sums.get(node)
        if match is None:
            return _spread(node, operands, readers) if node.op.name == "add" else rebuilt(node, operands)
        (product,) = operands
        x, factor = product.inputs[match.number], product.inputs[1 - match.number]
        absorbs = moves(match.product.inputs[match.number])
        if node.op.name == "sum":
            return _moved(_dot, factor.inputs[0], x, absorbs=absorbs)
        a = factor
        if factor.shape != x.shape[:-1]:
            a = simplify_node(
                apply("reshape", factor, shape=x.shape[:-1])
            )  # the factor may be a reshape itself
        return _moved(_mix, a, x, absorbs=absorbs)

    return rewrite_knowing(graph, attended)


def _sum_of_products(node: Node) -> _SumOfProducts | None:
    """Return the product that a node sums, if it has a factor for each element of a sequence."""
    if node.op.body != TOTAL or not node.type.is_float:
        return None
    (product,) = node.inputs
    if product.op.name != "multiply" or product.axis.rank < 2 or not product.shape:
        return None
    for number in (1, 0):
        x, factor = product.inputs[number], product.inputs[1 - number]
        if x.type != product.type or x.axis is not product.axis:
            continue
        if node.op.name == "sum":
            if (
                node.attrs["axes"] == (product.ndim - 1,)
                and factor.op.name == "repeat"
                and factor.type == x.type
            ):
                return _SumOfProducts(product, number)
        elif factor.axis is x.axis and factor.shape == (*x.shape[:-1], 1):
            return _SumOfProducts(product, number)
    return None


def _affine(x: Node) -> tuple[list[tuple[Node, Node]], list[Node]] | None:
    """Return elements and weights whose products are terms of a vector, and terms that are alike for all."""
    if x.op.name == "slice":
        inner = _affine(x.inputs[0])
        if inner is None:
            return None
        start, stop = x.attrs["start"], x.attrs["stop"]
        products, shared = inner
        cut = [(y, apply("slice", weight, axis=1, start=start, stop=stop)) for y, weight in products]
        return cut, [apply("slice", term, axis=0, start=start, stop=stop) for term in shared]
    products, shared = [], list[Node]()
    for term in x.inputs if x.op.name == "add" else (x,):
        if term.op.name == "linear" and term.type == x.type and term.ndim == 1:
            products.append((term.inputs[0], term.inputs[1]))
        elif term.axis is UNBATCHED and term.type == x.type:
            shared.append(term)
        else:
            return None
    return (products, shared) if products else None


def _heads(x: Node) -> list[Node]:
    """Return the vectors of which elements are made that have several, if they are worth it."""
    (vector,) = x.inputs if x.op.name == "reshape" else (x,)
    if x.ndim != 2 or vector.ndim != 1 or x.shape[1] < MIN_HEAD_COLUMNS or _affine(vector) is None:
        return []
    return [slice_of(vector, 0, i, i + x.shape[1]) for i in range(0, vector.shape[0], x.shape[1])]


def _row(x: Node, number: int) -> Node:
    return apply("reshape", slice_of(x, 0, number, number + 1), shape=x.shape[1:])


def _moved(absorbed: Callable[..., Node], row: Node, x: Node, *, absorbs: bool) -> Node:
    """Return a product with elements, `_dot` or `_mix`: by heads, and of what they are made of."""
    if absorbs and (heads := _heads(x)):
        parts = [_moved(absorbed, _row(row, i), head, absorbs=True) for i, head in enumerate(heads)]
        return apply("concat", *(apply("reshape", y, shape=(1, *y.shape)) for y in parts), axis=0)
    affine = _affine(x) if absorbs else None
    return absorbed(row, x, [(x, None)], []) if affine is None else absorbed(row, x, *affine)


def _dot(q: Node, x: Node, products: Products, shared: Sequence[Node]) -> Node:
    """Return the products of a call's row with elements, whose weights move to the side of the row."""
    terms = [
        apply("segment_dot", y, q if w is None else apply("linear", q, apply("transpose", w, axes=(1, 0))))
        for y, w in products
    ]
    if shared:
        row = apply("sum", q * _sum(shared), axes=(x.ndim - 1,))
        terms.append(apply("repeat", row, axis=x.axis))
    return _sum(terms)


def _mix(a: Node, x: Node, products: Products, shared: Sequence[Node]) -> Node:
    """Return the sum of elements times numbers; weights multiply the sum instead of the elements."""
    mixed = [(apply("segment_mix", a, y), weight) for y, weight in products]
    terms = [y if weight is None else apply("linear", y, weight) for y, weight in mixed]
    if shared:
        total = apply("segment_sum", a)
        terms.append(apply("reshape", total, shape=(*total.shape, 1)) * _sum(shared))
    return _sum(terms)


def _spread(node: Node, operands: list[Node], readers: Mapping[Node, Sequence[Node | None]]) -> Node:
    """Return a sum, with terms that are rows of calls times numbers of elements, and read here, as one."""
    alone = [
        x
        for x, old in zip(operands, node.inputs, strict=True)
        if x.op.name == "segment_spread" and x.type == node.type and readers[old] == [node]
    ]
    if len(alone) < 2:
        return rebuilt(node, operands)
    spread = apply("segment_spread", *(y for x in alone for y in x.inputs))
    return _sum([spread, *(x for x in operands if x not in alone)])


def _sum(terms: Sequence[Node]) -> Node:
    return apply("add", *terms) if len(terms) > 1 else terms[0]
