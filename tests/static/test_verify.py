"""Legal graphs pass; every kind of breach is named, with the pass that caused it."""

from typing import Any

import pytest
from hypothesis import given, settings

from foldbatch.static import ops
from foldbatch.static.graph import Graph, Node, input_node, verify
from foldbatch.static.op import CALL, OPS, UNBATCHED, Axis, ragged
from foldbatch.types import TensorType
from tests.strategies import Problem, problems

VECTOR, MATRIX = TensorType((3,)), TensorType((2, 3))


@settings(max_examples=35, deadline=None)
@given(problems(smooth=False, gradients=True))
def test_all_that_the_ops_build_is_legal(problem: Problem) -> None:
    assert verify(problem.graph) is problem.graph


def test_an_input_given_twice_is_a_breach() -> None:
    x = input_node(VECTOR)
    with pytest.raises(AssertionError, match="simplify: an input is given twice"):
        verify(Graph((x, x), (x,)), "simplify")


def test_an_input_that_is_read_but_not_given_is_a_breach() -> None:
    x, y = input_node(VECTOR), input_node(VECTOR)
    with pytest.raises(AssertionError, match=r"fuse: <input N float32.3.> is read but not an input"):
        verify(Graph((x,), (x + y,)), "fuse")


def _forged(
    name: str, inputs: tuple[Node, ...], type_: TensorType, along: Axis = CALL, /, **attrs: Any
) -> Graph:
    ends = tuple(dict.fromkeys(x for x in inputs if x.op.name == "input"))
    return Graph(ends, (Node(OPS[name], inputs, attrs, type_, along),))


X, M, W = input_node(VECTOR), input_node(MATRIX), input_node(VECTOR, UNBATCHED)
E, D = input_node(VECTOR, ragged()), input_node(VECTOR, ragged())


NODE_THAT = [
    (_forged("tanh", (X,), MATRIX), r"tanh yields float32\[3\], not float32\[2,3\]"),
    (_forged("tanh", (X,), TensorType((3,), "float64")), r"not float64\[3\]"),
    (_forged("tanh", (X,), VECTOR, UNBATCHED), "tanh runs along N, not 1"),
    (_forged("tanh", (W,), VECTOR, CALL), "tanh runs along 1, not N"),
    (_forged("sum_batch", (X,), VECTOR, CALL), "sum_batch runs along 1, not N"),
    (_forged("sum_batch", (W,), VECTOR, UNBATCHED), "expected a tensor with a row per call"),
    (_forged("add", (X, E), VECTOR, E.axis), r"add mixes the axes \['M', 'N'\]"),
    (_forged("add", (D, E), VECTOR, E.axis), r"add mixes the axes \['M', 'M'\]"),
    (_forged("concat", (X, E), TensorType((6,)), E.axis, axis=0), "concat mixes the axes"),
    (_forged("add", (X, M), MATRIX), "add has batched operands of ranks {1, 2}"),
    (_forged("add", (X, X[:2]), VECTOR), "expected shapes that broadcast"),
    (_forged("slice", (X,), VECTOR, axis=0, start=1, stop=4), "expected a range within"),
]


def test_a_node_that_breaks_its_ops_rules_is_a_breach() -> None:
    for graph, message in NODE_THAT:
        with pytest.raises(AssertionError, match=message):
            verify(graph)


def test_a_node_that_is_older_than_its_operands_is_a_breach() -> None:
    node = ops.tanh(input_node(VECTOR))
    node.inputs = (input_node(VECTOR),)
    with pytest.raises(AssertionError, match="precedes its operands"):
        verify(Graph(node.inputs, (node,)))
