"""Nodes: interning, axes, operators, errors; graphs: cuts of the DAG, however deep."""

import math
from pathlib import Path

import numpy as np
import pytest

from foldbatch.errors import GraphError, UnknownNameError
from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.autodiff import jvp, vjp
from foldbatch.static.cell import cotangents
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, apply, constant, input_node, parameter_node, reachable, verify
from foldbatch.static.op import UNBATCHED, ragged
from foldbatch.static.printer import print_graph
from foldbatch.types import TensorType

VECTOR = TensorType((3,))
DEEP = 3_000

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
    "t": input_node(TensorType((4, 3, 5)), UNBATCHED),
    "k": input_node(TensorType((), "int32")),
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


def _chain(x: Node) -> Node:
    y = x
    for _ in range(DEEP):
        y = y + x
    return y


def test_a_chain_of_3000_sums_is_no_recursion() -> None:
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


def test_all_cells_of_a_graph_have_one_backward_graph() -> None:
    """Else its order, and so the last bit of a sum, would depend on what else was compiled from the graph."""
    x = input_node(VECTOR)
    graph = CellGraph("cell", (x,), (), (x * x, x * x))
    ends = Ends(active_operands=frozenset({0}), active_outputs=frozenset({0, 1}))
    (seeds, results), (others, twin) = (cotangents(graph, ends) for _ in range(2))
    assert results == twin and seeds == others and seeds[0] is not seeds[1]
