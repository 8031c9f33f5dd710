"""The simplifier as a whole: its laws. Its rules stand in test_arithmetic, test_movement, test_sums."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from foldbatch.static import ops
from foldbatch.static.autodiff import vjp
from foldbatch.static.graph import Graph, Node, apply, constant, input_node
from foldbatch.static.op import OPS
from foldbatch.static.passes.simplify import RULES, simplify, simplify_node
from foldbatch.types import TensorType
from tests.static.passes.checks import cases, check_law
from tests.static.text_graph import read_graph
from tests.strategies import Problem, problems


@settings(max_examples=60, deadline=None)
@given(problems(smooth=False, gradients=True))
def test_simplifying_keeps_types_and_values_and_is_done_at_once(problem: Problem) -> None:
    check_law(problem, simplify)


def test_the_rules_are_for_ops_that_exist() -> None:
    assert set(RULES) <= set(OPS)


def test_every_rule_fires_in_some_case() -> None:
    graphs = [read_graph(case.before) for name in ("arithmetic", "movement", "sums") for case in cases(name)]
    for name, rules in RULES.items():
        for rule in rules:
            nodes = (node for graph in graphs for node in graph.nodes if node.op.name == name)
            # a rule may wait for another one to simplify the operands
            assert any(
                rule(node) is not None or rule(_with_simple_operands(node)) is not None for node in nodes
            ), rule


def _with_simple_operands(node: Node) -> Node:
    return apply(node.op.name, *(simplify_node(x) for x in node.inputs), **node.attrs)


def test_the_gradient_of_gates_read_from_one_product_pads_nothing() -> None:
    x, w = input_node(TensorType((3,))), constant(np.ones((3, 8), np.float32))
    i, f, o, u = ops.split(x @ w, 4)
    h = ops.sigmoid(o) * ops.tanh(ops.sigmoid(i) * ops.tanh(u) + ops.sigmoid(f))
    g = input_node(h.type)
    (dx,) = vjp([h], [g], [x])
    assert dx is not None
    names = [node.op.name for node in simplify(Graph((x, g), (dx,))).nodes]
    assert "pad" not in names
    assert names.count("concat") == 1


def test_8000_parts_are_joined_by_one_concatenation() -> None:
    x = input_node(TensorType((8_000,)))
    parts = [x[i] for i in range(8_000)]
    gs = [input_node(part.type) for part in parts]
    (dx,) = vjp(parts, gs, [x])
    assert dx is not None
    simple = simplify(Graph(tuple(gs), (dx,)))
    assert [node.op.name for node in simple.nodes].count("concat") == 1
    assert [node.op.name for node in simple.nodes].count("add") == 0
