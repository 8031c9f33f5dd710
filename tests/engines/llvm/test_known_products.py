"""Which products a recursion need not repeat, and what follows from them backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from foldbatch.engines.llvm.known_products import find_product
from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import Node, apply, input_node, parameter_node
from foldbatch.static.sides import backward_side, optimized
from foldbatch.types import TensorType

W = Parameter([128, 64], init=np.ones((128, 64)), name="w")
V = Parameter([64, 64], init=np.ones((64, 64)), name="v")
ENDS = Ends(frozenset({0}), frozenset({0}), frozenset({0}), frozenset({0}))


def joined(pair: Node) -> Node:
    return apply("reshape", pair, shape=(128,))


def cell(compute: Callable[[Node], Node], shape: tuple[int, ...] = (2, 64)) -> CellGraph:
    pair = input_node(TensorType(shape))
    return CellGraph("cell", (pair,), (), (compute(pair),))


def results_of(graph: CellGraph):
    """Return a cell's graph after all passes, and the results of its backward direction."""
    staged = optimized(graph, ENDS, training=True)
    return staged.graph, backward_side(staged, ENDS).results


def test_a_product_of_all_that_is_read_is_found() -> None:
    graph, results = results_of(cell(lambda pair: ops.tanh(joined(pair) @ parameter_node(W))))
    product = find_product(graph, ENDS)
    assert product is not None
    assert (product.operand, product.parameter) == (0, W)
    derivative = product.derivative(results)
    assert derivative is not None
    assert derivative.cotangent.type == product.node.type
    assert (derivative.what, derivative.gradient) == (("cotangent", 0), ("gradient", W))
    assert derivative.rest is None
    assert derivative.without(results) == ()
    assert product.derivative([*results, results[-1]]) is None, "the weight's gradient has another part"
    assert product.derivative(results[:-1]) is None
    assert product.derivative([]) is None


def test_what_else_is_made_of_the_operand_is_left() -> None:
    """Its cotangent has another part, which kernels yield."""
    graph, results = results_of(cell(lambda pair: ops.tanh(joined(pair) @ parameter_node(W)) * pair[0]))
    product = find_product(graph, ENDS)
    assert product is not None
    derivative = product.derivative(results)
    assert derivative is not None
    assert derivative.rest is not None
    assert derivative.rest.type == graph.operands[0].type
    assert derivative.without(results) == ((("cotangent", 0), derivative.rest),)
    assert derivative.without([(("gradient", W), derivative.rest)]) == ()


@pytest.mark.parametrize(
    ("compute", "shape"),
    [
        pytest.param(
            lambda x: joined(x) @ parameter_node(W) * ops.sum(joined(x)),
            (2, 64),
            id="its rows are read again",
        ),
        pytest.param(lambda x: ops.tanh(x) @ parameter_node(V), (64,), id="something is made of it before"),
        pytest.param(lambda x: x @ parameter_node(V), (64,), id="one row alone"),
        pytest.param(
            lambda x: apply("reshape", x, shape=(64,)) @ parameter_node(V), (2, 32), id="short rows"
        ),
    ],
)
def test_others_are_not(compute: Callable[[Node], Node], shape: tuple[int, ...]) -> None:
    assert find_product(cell(compute, shape), ENDS) is None


def test_what_is_not_recursive_is_left_alone() -> None:
    graph = cell(lambda pair: ops.tanh(joined(pair) @ parameter_node(W)))
    assert find_product(graph, ENDS) is not None
    assert find_product(graph, replace(ENDS, recursive_operands=frozenset())) is None


def test_a_weight_that_is_read_elsewhere_has_another_gradient() -> None:
    weight = parameter_node(W)
    graph, results = results_of(cell(lambda pair: ops.tanh(joined(pair) @ weight) * weight[0]))
    product = find_product(graph, ENDS)
    assert product is not None
    assert product.derivative(results) is None
