"""Nodes: interning, axes, operators, errors; graphs: cuts of the DAG, however deep."""

from __future__ import annotations

import gc
import math
import weakref
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from foldbatch.errors import GraphError, UnknownNameError
from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.autodiff import jvp, vjp
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, apply, constant, input_node, parameter_node, reachable
from foldbatch.static.op import CALL, UNBATCHED, ragged
from foldbatch.static.printer import print_graph
from foldbatch.static.verify import verify
from foldbatch.types import TensorType
from tests.strategies import Problem, problems

VECTOR = TensorType((3,))
DEEP = 8_000

NAMES = {
    "np": np,
    "math": math,
    "ops": ops,
    "apply": apply,
    "s": input_node(TensorType(())),
    "x": input_node(VECTOR),
    "n": input_node(TensorType((4,))),
    "m": input_node(TensorType((2, 3))),
    "f": input_node(TensorType((3,), "float64")),
    "i": input_node(TensorType((3,), "int32")),
    "b": input_node(TensorType((3,), "bool")),
    "w": input_node(TensorType((3, 2)), UNBATCHED),
    "e": input_node(VECTOR, ragged()),
    "d": input_node(VECTOR, ragged()),
}
MISUSES = (Path(__file__).parent / "misuses.txt").read_text().splitlines()


def test_a_misuse_says_what_is_wrong_and_what_to_do() -> None:
    """misuses.txt holds an expression of `NAMES` and the error it raises, by turns."""
    for expression, message in list(zip(MISUSES[::2], MISUSES[1::2], strict=True)):
        with pytest.raises((GraphError, UnknownNameError)) as caught:
            eval(expression, dict(NAMES))
        assert f"    {type(caught.value).__name__}: {caught.value}" == message


def test_the_same_expression_is_the_same_object() -> None:
    x, y = input_node(VECTOR), input_node(VECTOR)
    assert x + y is x + y
    assert x * 2 is x * 2
    assert ops.concat([x, y])[1:4] is ops.concat([x, y])[1:4]
    assert ops.tanh(x) is not ops.tanh(y)
    assert x + y is not y + x


def test_attributes_tell_expressions_apart() -> None:
    x = input_node(TensorType((2, 2)))
    assert ops.sum(x, 0) is not ops.sum(x, 1)
    assert ops.cast(x, "int32") is not ops.cast(x, "int64")
    assert apply("batch", constant(1), axis=CALL) is not apply("batch", constant(1), axis=ragged())


def test_two_inputs_are_never_the_same() -> None:
    assert input_node(VECTOR, name="x") is not input_node(VECTOR, name="x")


def test_constants_are_the_same_when_their_bytes_dtype_and_shape_are() -> None:
    assert constant(1.5) is constant(np.float32(1.5))
    assert constant([1, 2]) is constant(np.array([1, 2]))
    assert constant(np.nan) is constant(np.nan)
    different = [
        constant(1),
        constant(1.0),
        constant(1.0, "float64"),
        constant([1]),
        constant([[1]]),
        constant(True),
    ]
    assert len(set(different)) == len(different)
    assert constant(0.0) is not constant(-0.0)


def test_a_constant_does_not_change_with_the_array_it_was_made_of() -> None:
    array = np.ones(3)
    node = constant(array)
    array[:] = 7
    assert node.attrs["value"].tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        node.attrs["value"][0] = 7


def test_a_python_float_is_float32_and_an_array_keeps_its_dtype() -> None:
    assert [constant(v).dtype for v in (1.0, [1.0], 1, True)] == ["float32", "float32", "int64", "bool"]
    assert [constant(v).dtype for v in (np.float64(1), np.ones(1), np.ones(1, "int32"))] == [
        "float64",
        "float64",
        "int32",
    ]


def test_a_parameter_is_known_by_identity_not_by_name() -> None:
    first, second = (Parameter(VECTOR, name="w") for _ in range(2))
    assert parameter_node(first) is parameter_node(first)
    assert parameter_node(first) is not parameter_node(second)


def test_a_node_nobody_needs_is_freed() -> None:
    x = input_node(VECTOR)
    y = ops.tanh(x)
    gone = weakref.ref(ops.exp(y))
    gc.collect()
    assert gone() is None
    assert ops.tanh(x) is y


def test_the_batch_axis_of_a_result_is_the_widest_of_its_operands() -> None:
    elements = ragged()
    whole, call, element = (input_node(VECTOR, axis) for axis in (UNBATCHED, CALL, elements))
    assert (whole + whole).axis is UNBATCHED
    assert (whole + call).axis is CALL
    assert (whole + element).axis is elements
    assert ops.concat([element, whole, call]).axis is elements


def test_a_batched_operand_gets_the_rank_of_the_result() -> None:
    """Else its batch axis would meet an instance axis of the other operand."""
    vector, matrix, weight = input_node(VECTOR), input_node(TensorType((2, 3))), input_node(VECTOR, UNBATCHED)
    assert [x.shape for x in (vector + matrix).inputs] == [(1, 3), (2, 3)]
    assert [x.shape for x in (weight + matrix).inputs] == [(3,), (2, 3)]


def test_reachable_puts_operands_first_and_stops_where_told() -> None:
    x = input_node(VECTOR)
    y = ops.tanh(x)
    z = ops.exp(y) + y
    nodes = reachable([z])
    assert set(nodes) == {x, y, z, ops.exp(y)}
    assert all(nodes.index(operand) < nodes.index(node) for node in nodes for operand in node.inputs)
    assert x not in reachable([z], stop=[y])
    assert y in reachable([z], stop=[y])


def test_a_graph_is_a_cut_without_its_inputs() -> None:
    x = input_node(VECTOR)
    y = ops.tanh(x)
    z = ops.exp(y)
    assert Graph((x,), (z,)).nodes == (y, z)
    assert Graph((y,), (z,)).nodes == (z,)
    assert Graph((x, y), (y,)).nodes == ()


def test_a_graph_lists_its_parameters_in_the_order_of_first_use() -> None:
    """Not in that in which some other graph first used them."""
    first, second = Parameter(VECTOR), Parameter(VECTOR)
    kept = [parameter_node(second), parameter_node(first)]
    x = input_node(VECTOR)
    assert Graph((x,), (ops.tanh(x * first) * second,)).parameters == (first, second)
    assert kept[0].number < kept[1].number


@settings(max_examples=30, deadline=None)
@given(problems(smooth=False))
def test_the_nodes_of_a_graph_follow_their_operands(problem: Problem) -> None:
    seen = set(problem.graph.inputs)
    for node in problem.graph.nodes:
        assert node not in seen
        assert seen.issuperset(node.inputs)
        seen.add(node)
    assert seen.issuperset(problem.graph.outputs)
    assert seen == set(reachable(problem.graph.outputs)) | set(problem.graph.inputs)


def _chain(x: Node) -> Node:
    y = x
    for _ in range(DEEP):
        y = y + x
    return y


def test_a_chain_of_8000_sums_is_no_recursion() -> None:
    x, g = input_node(TensorType((), "float64")), input_node(TensorType((), "float64"))
    y = _chain(x)
    graph = verify(Graph((x,), (y,)))
    assert len(reachable([y])) == DEEP + 1
    assert evaluate(graph, [2.0]) == [2.0 * (DEEP + 1)]
    assert print_graph(graph).count("\n") == DEEP + 1
    (slope,) = vjp([y], [g], [x])
    (ahead,) = jvp([y], [x], [g])
    assert slope is not None
    assert ahead is not None
    assert evaluate(Graph((x, g), (slope, ahead)), [2.0, 3.0]) == [3.0 * (DEEP + 1)] * 2


def test_an_unknown_op_lists_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match=r"expected one of abs, add, .* where, found 'tan'"):
        apply("tan", input_node(VECTOR))
