"""Passes keep what graphs compute, end, and are checked one by one."""

import numpy as np
import pytest
from hypothesis import given, settings

from foldbatch.static import ops, passes
from foldbatch.static.autodiff import vjp
from foldbatch.static.graph import CONSTANT, SOURCES, Graph, Node, apply, constant, input_node
from foldbatch.static.op import OPS, UNBATCHED
from foldbatch.static.passes.rewrite import MAX_FOLDED, fold_constants
from foldbatch.static.passes.simplify import RULES, simplify, simplify_node
from foldbatch.types import TensorType
from tests.static.passes.checks import cases, check_case, check_law
from tests.static.text_graph import Case, read_graph
from tests.strategies import Problem, problems


@settings(max_examples=30, deadline=None)
@given(problems(smooth=False, gradients=True))
def test_the_pipeline_keeps_types_and_values_and_is_done_at_once(problem: Problem) -> None:
    check_law(problem, passes.run)


@pytest.mark.parametrize("name", [name for name, _ in passes.PIPELINE])
def test_every_pass_returns_the_very_graph_when_there_is_nothing_to_do(name: str) -> None:
    x = input_node(TensorType((3,)))
    graph = Graph((x,), (ops.tanh(x),))
    assert dict(passes.PIPELINE)[name](graph) is graph


def test_a_pass_that_breaks_a_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    x, stray = input_node(TensorType((3,))), input_node(TensorType((3,)))
    monkeypatch.setattr(passes, "PIPELINE", (("vandal", lambda graph: Graph(graph.inputs, (stray,))),))
    graph = Graph((x,), (x,))
    with pytest.raises(AssertionError, match=r"vandal: .* is read but not an input"):
        passes.run(graph)
    assert passes.run(graph, check=False).outputs == (stray,)


@pytest.mark.parametrize("case", cases("fold_constants"), ids=str)
def test_the_graph_becomes_what_its_case_says(case: Case) -> None:
    check_case(case, fold_constants)


@settings(max_examples=30, deadline=None)
@given(problems(smooth=False))
def test_folding_keeps_types_and_values_and_is_done_at_once(problem: Problem) -> None:
    check_law(problem, fold_constants)


@settings(max_examples=30, deadline=None)
@given(problems(smooth=False))
def test_no_small_unbatched_node_on_constants_alone_is_left(problem: Problem) -> None:
    for node in fold_constants(problem.graph).nodes:
        if node.op not in SOURCES and node.axis is UNBATCHED and node.type.size <= MAX_FOLDED:
            assert any(x.op is not CONSTANT for x in node.inputs) or node.op.bound


def test_a_constant_is_folded_in_the_dtype_of_its_node() -> None:
    """1/3 in float32 is not 1/3 in float64: the kernel would have computed the former."""
    third = fold_constants(Graph((), (constant(1.0) / constant(3.0),))).outputs[0]
    assert third.attrs["value"] == np.float32(1) / np.float32(3)
    assert third.attrs["value"].dtype == np.float32


def test_a_constant_that_is_an_input_of_the_graph_is_not_folded() -> None:
    """The inputs of a graph are given from outside, whatever they are."""
    given_ = constant(2.0)
    graph = Graph((given_,), (ops.exp(given_),))
    assert fold_constants(graph) is graph


@pytest.mark.parametrize("index", [-1, 4])
def test_an_index_out_of_range_is_left_for_the_kernel_to_refuse(index: int) -> None:
    graph = Graph((), (ops.one_hot(constant([0, index]), 4),))
    assert fold_constants(graph) is graph


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


def test_2000_parts_are_joined_by_one_concatenation() -> None:
    x = input_node(TensorType((2_000,)))
    parts = [x[i] for i in range(2_000)]
    gs = [input_node(part.type) for part in parts]
    (dx,) = vjp(parts, gs, [x])
    assert dx is not None
    simple = simplify(Graph(tuple(gs), (dx,)))
    assert [node.op.name for node in simple.nodes].count("concat") == 1
    assert [node.op.name for node in simple.nodes].count("add") == 0
