"""Graphs as text: every kind of line, names that depend on the graph alone, and back again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from foldbatch.params.parameters import Owner, Parameter
from foldbatch.static import ops
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import PARAMETER, Graph, Node, constant, input_node, parameter_node
from foldbatch.static.op import ragged
from foldbatch.static.printer import print_graph
from foldbatch.types import TensorType
from tests.static.text_graph import read_graph
from tests.strategies import Problem, problems

VECTOR = TensorType((3,))


def test_every_kind_of_line() -> None:
    elements = ragged("K")
    x, e = input_node(VECTOR), input_node(VECTOR, elements)
    weight = Parameter(TensorType((3, 2)), name="weight", owner=Owner("linear"))
    bias = Parameter(TensorType((2,)), name="bias")
    y = (x + ops.segment_sum(e * x)) @ weight + bias
    graph = Graph((x, e), (y, ops.sum(ops.where(y > 0, y, 0.5), 0), x))
    assert (
        print_graph(graph)
        == """\
(%0: N float32[3], %1: K float32[3])
%2: K float32[3] = repeat(%0, axis=K)
%3: K float32[3] = multiply(%1, %2)
%4: N float32[3] = segment_sum(%3)
%5: N float32[3] = add(%0, %4)
%6: 1 float32[3,2] = parameter linear.weight
%7: N float32[2] = linear(%5, %6)
%8: 1 float32[2] = parameter bias
%9: N float32[2] = add(%7, %8)
%10: 1 float32 = constant 0.0
%11: N bool[2] = less(%10, %9)
%12: 1 float32 = constant 0.5
%13: N float32[2] = where(%11, %9, %12)
%14: N float32 = sum(%13, axes=(0,))
return (%9, %14, %0)"""
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(0.1), "constant 0.10000000149011612"),
        (True, "constant True"),
        ([[1, 2], [3, 4]], "constant [[1, 2], [3, 4]]"),
        (np.zeros((3, 3), "float32"), "constant of shape (3, 3) filled with 0.0"),
        (np.arange(9), "constant of shape (9,)"),
        (np.zeros((0, 3), "float32"), "constant []"),
    ],
)
def test_a_small_constant_is_written_out(value: object, text: str) -> None:
    assert print_graph(Graph((), (constant(value),))).splitlines()[1].endswith(f"= {text}")


def test_the_text_does_not_depend_on_what_was_built_before() -> None:
    """Neither on constants and parameters met earlier, nor on the order in which operands were built."""

    def built(*, reverse: bool) -> str:
        x, w = input_node(VECTOR), Parameter(TensorType((3, 3)))
        makers: list[Callable[[], Node]] = [lambda: ops.tanh(x) * 77.5, lambda: x @ ops.transpose(w)]
        if reverse:
            right, left = [make() for make in makers[::-1]]
        else:
            left, right = [make() for make in makers]
        return print_graph(Graph((x,), (left + right,)))

    assert built(reverse=False) == built(reverse=True)


def test_names_that_are_given_stand_for_nodes_and_leave_only_ops_to_be_listed() -> None:
    x, weight = input_node(VECTOR), Parameter(TensorType((3, 3)), name="weight")
    total = ops.sum((x @ weight) * 2.0, 0)
    scaled = total.inputs[0]
    product, two = scaled.inputs
    names = {x: "x0", product: "%7", scaled: "%8", total: "%9", parameter_node(weight): "w", two: "2.0"}
    assert (
        print_graph(Graph((x,), (total, two)), names)
        == """\
(x0: N float32[3])
%7: N float32[3] = linear(x0, w)
%8: N float32[3] = multiply(%7, 2.0)
%9: N float32 = sum(%8, axes=(0,))
return (%9, 2.0)"""
    )


@settings(max_examples=30, deadline=None)
@given(problems(smooth=False))
def test_the_text_says_all_there_is_to_know(problem: Problem) -> None:
    """A graph read back from its text computes the same (parameters apart, which have no text)."""
    if any(node.op is PARAMETER for node in problem.graph.nodes):
        return
    text = print_graph(problem.graph)
    again = read_graph(text)
    assert print_graph(again) == text
    with np.errstate(all="ignore"):
        pairs = zip(evaluate(problem.graph, problem.values), evaluate(again, problem.values), strict=True)
    for expected, found in pairs:
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
