"""The rewriting walk: operands first, identical where nothing changes, never behind an input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.static import ops
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import SOURCES, Graph, Node, constant, input_node
from foldbatch.static.passes import run
from foldbatch.static.passes.rewrite import rewrite, sealed
from foldbatch.static.verify import verify
from foldbatch.types import TensorType
from tests.static.passes.checks import check_same
from tests.strategies import Problem, problems

VECTOR = TensorType((3,))


def _tanh_is_negative(node: Node) -> Node:
    return -node.inputs[0] if node.op.name == "tanh" else node


def test_a_rule_sees_operands_that_are_already_rewritten() -> None:
    x = input_node(VECTOR)
    seen: list[Node] = []

    def rule(node: Node) -> Node:
        seen.append(node)
        return _tanh_is_negative(node)

    rewrite(Graph((x,), (ops.exp(ops.tanh(x)),)), rule)
    assert [node.op.name for node in seen] == ["tanh", "exp"]
    assert seen[1].inputs == (-x,)


def test_a_node_read_twice_is_rewritten_once() -> None:
    x = input_node(VECTOR)
    y = ops.tanh(x)
    seen: list[Node] = []

    def rule(node: Node) -> Node:
        seen.append(node)
        return node

    rewrite(Graph((x,), (y + y, y)), rule)
    assert seen.count(y) == 1


def test_an_input_is_neither_rewritten_nor_looked_behind() -> None:
    """A rule would have liked to rewrite the tanh, and to see that a tanh lies under the exp."""
    x = input_node(VECTOR)
    inner = ops.tanh(x)
    operands: list[str] = []

    def rule(node: Node) -> Node:
        operands.extend(operand.op.name for operand in node.inputs)
        return _tanh_is_negative(node)

    graph = Graph((inner,), (ops.exp(inner), inner))
    assert rewrite(graph, rule) is graph
    assert operands == ["input"]


def test_an_input_may_depend_on_another_one() -> None:
    x = input_node(VECTOR)
    first = ops.exp(x)
    second = ops.exp(first)
    graph = Graph((first, second), (ops.tanh(first * second),))
    assert rewrite(graph, _tanh_is_negative).outputs == (-(first * second),)


def test_a_rule_that_changes_a_type_is_found_out() -> None:
    x = input_node(VECTOR)
    with pytest.raises(AssertionError, match="rewriting <tanh N float32"):
        rewrite(Graph((x,), (ops.tanh(x),)), ops.sum)


def test_a_rule_that_loses_the_batch_axis_is_found_out() -> None:
    x = input_node(VECTOR)
    zeros = constant(np.zeros(3, np.float32))
    with pytest.raises(AssertionError, match="gave <constant 1 float32"):
        rewrite(Graph((x,), (ops.tanh(x),)), lambda node: zeros)


def test_a_chain_of_8000_nodes_is_no_recursion() -> None:
    x = input_node(VECTOR)
    y = x
    for _ in range(8_000):
        y = ops.tanh(y)
    result = rewrite(Graph((x,), (y,)), _tanh_is_negative)
    assert len(result.nodes) == 8_000
    assert {node.op.name for node in result.nodes} == {"negative"}


def test_sealing_shows_a_transformation_only_inputs() -> None:
    x = input_node(VECTOR)
    inner = ops.tanh(x)
    shown: list[Graph] = []
    graph = Graph((x, inner), (x + inner,))

    def transform(masked: Graph) -> Graph:
        shown.append(masked)
        return masked

    assert sealed(graph, transform) is graph
    assert shown[0].inputs[0] is x
    assert all(node.op in SOURCES for node in shown[0].inputs)


@settings(max_examples=45, deadline=None)
@given(problems(smooth=False, gradients=True), st.data())
def test_a_cut_at_any_node_reads_only_what_it_is_given(problem: Problem, data: st.DataObject) -> None:
    """Stages cut graphs anywhere; no pass may bring back what lies behind the cut."""
    interior = [node for node in problem.graph.nodes if node.op not in SOURCES] or list(problem.graph.inputs)
    cut = data.draw(st.lists(st.sampled_from(range(len(interior))), min_size=1, max_size=3, unique=True))
    nodes = [interior[i] for i in cut if interior[i] not in problem.graph.inputs]
    values = evaluate(Graph(problem.graph.inputs, tuple(nodes)), problem.values)
    graph = Graph((*problem.graph.inputs, *nodes), problem.graph.outputs)
    result = verify(run(graph))
    check_same(graph, result, [*problem.values, *values])
    assert _read(result) <= _read(graph)


def _read(graph: Graph) -> set[Node]:
    read = {x for node in graph.nodes for x in node.inputs} | set(graph.outputs)
    return read & set(graph.inputs)
