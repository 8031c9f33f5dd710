"""Which products a recursion may leave to the runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from foldbatch.params import Parameter
from foldbatch.static import ops
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import Node, apply, input_node, parameter_node
from foldbatch.static.hoisting import find_product
from foldbatch.static.sides import backward_side, forward_side, optimized
from foldbatch.types import TensorType

W = Parameter([128, 64], init=np.ones((128, 64)), name="w")
ENDS = Ends(frozenset({0}), frozenset({0}), frozenset({0}), frozenset({0}))


def joined(pair: Node) -> Node:
    return apply("reshape", pair, shape=(128,))


def cell(compute: Callable[[Node], Node], shape: tuple[int, ...] = (2, 64)) -> CellGraph:
    pair = input_node(TensorType(shape))
    return CellGraph("cell", (pair,), (), (compute(pair),))


def test_a_product_of_all_that_is_read_is_found() -> None:
    graph = optimized(cell(lambda pair: ops.tanh(joined(pair) @ parameter_node(W))), ENDS, training=True)
    product = find_product(graph, ENDS)
    assert product is not None
    assert (product.operand, product.parameter) == (0, W)
    forward = forward_side(graph, ENDS)
    backward = backward_side(graph, ENDS, forward)
    found = product.derivative(backward.results)
    assert found is not None
    assert found.cotangent.type == product.node.type
    assert (found.what, found.gradient, found.rest) == (("cotangent", 0), ("gradient", W), None)
    assert found.taken_from(backward.results) == []
    twice = [*backward.results, backward.results[-1]]
    assert product.derivative(twice) is None, "the weight's gradient has another part"
    assert product.derivative(backward.results[:-1]) is None
    assert product.derivative([]) is None


def test_what_else_is_made_of_the_operand_is_left() -> None:
    """Its cotangent has another part, which kernels yield."""
    graph = cell(lambda pair: ops.tanh(joined(pair) @ parameter_node(W)) * pair[0])
    graph = optimized(graph, ENDS, training=True)
    product = find_product(graph, ENDS)
    assert product is not None
    backward = backward_side(graph, ENDS, forward_side(graph, ENDS))
    found = product.derivative(backward.results)
    assert found is not None
    assert found.rest is not None
    assert found.rest.type == graph.operands[0].type
    assert found.taken_from(backward.results) == [(("cotangent", 0), found.rest)]
    assert found.taken_from([(("gradient", W), found.rest)]) == []


V = Parameter([64, 64], init=np.ones((64, 64)), name="v")
SMALL = Parameter([64, 64], init=np.ones((64, 64)), name="small")


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
            lambda x: apply("reshape", x, shape=(64,)) @ parameter_node(SMALL), (2, 32), id="short rows"
        ),
    ],
)
def test_others_are_not(compute: Callable[[Node], Node], shape: tuple[int, ...]) -> None:
    assert find_product(cell(compute, shape), ENDS) is None


def test_what_is_not_recursive_is_not_hoisted() -> None:
    graph = cell(lambda pair: ops.tanh(joined(pair) @ parameter_node(W)))
    assert find_product(graph, replace(ENDS, recursive_operands=frozenset())) is None


def test_a_weight_that_is_read_elsewhere_has_another_gradient() -> None:
    graph = optimized(
        cell(lambda pair: ops.tanh(joined(pair) @ parameter_node(W)) * parameter_node(W)[0]),
        ENDS,
        training=True,
    )
    product = find_product(graph, ENDS)
    assert product is not None
    assert product.derivative(backward_side(graph, ENDS, forward_side(graph, ENDS)).results) is None
