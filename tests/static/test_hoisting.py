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
    g = product.cotangent(backward.results)
    assert g is not None
    assert g.type == product.node.type
    made = [what for what, _ in backward.results if product.makes(what)]
    assert sorted(map(str, made)) == sorted(map(str, [("cotangent", 0), ("gradient", W)]))
    twice = [*backward.results, backward.results[-1]]
    assert product.cotangent(twice) is None, "the weight's gradient has another part"
    assert product.cotangent(backward.results[:-1]) is None
    assert product.cotangent([]) is None


V = Parameter([64, 64], init=np.ones((64, 64)), name="v")
SMALL = Parameter([64, 64], init=np.ones((64, 64)), name="small")


@pytest.mark.parametrize(
    ("compute", "shape"),
    [
        pytest.param(
            lambda x: joined(x) @ parameter_node(W) + x[0], (2, 64), id="the operand is read elsewhere"
        ),
        pytest.param(
            lambda x: joined(x) @ parameter_node(W) * ops.sum(joined(x)), (2, 64), id="so are its rows"
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
    assert product.cotangent(backward_side(graph, ENDS, forward_side(graph, ENDS)).results) is None
