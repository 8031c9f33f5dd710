"""Each phase's graph: no mark is left, and types and axes stay."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.static import ops
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, input_node
from foldbatch.static.op import CALL, UNBATCHED, ragged
from foldbatch.static.passes.phase import in_phase
from foldbatch.static.verify import verify
from foldbatch.types import TensorType

V = TensorType((3,))


def test_a_graph_without_phases_is_itself() -> None:
    x = input_node(V)
    graph = Graph((x,), (ops.tanh(x),))
    for training in (True, False):
        assert in_phase(graph, training=training) is graph


@pytest.mark.parametrize(("training", "expected"), [(True, 1.0), (False, 9.0)])
def test_marks_inside_marks_are_settled_alike(training: bool, expected: float) -> None:
    x = input_node(TensorType(()))
    y = ops.when_training(ops.when_training(x, x + 1), ops.when_training(x + 2, ops.square(x + 2)))
    graph = verify(in_phase(Graph((x,), (y,)), training=training))
    assert not any(node.op.name == "when_training" for node in graph.nodes)
    assert evaluate(graph, [1.0])[0] == expected


@pytest.mark.parametrize("axis", [CALL, ragged()])
def test_the_axis_stays_when_the_choice_has_fewer_rows(axis: object) -> None:
    elements = ragged()
    a, b = input_node(V, UNBATCHED), input_node(V, CALL if axis is CALL else elements)
    y = ops.when_training(a, b)
    settled = verify(in_phase(Graph((a, b), (y,)), training=True)).outputs[0]
    assert (settled.axis, settled.op.name, settled.inputs) == (b.axis, "batch", (a,))
    assert in_phase(Graph((a, b), (y,)), training=False).outputs == (b,)


def test_it_does_not_look_behind_the_graphs_inputs() -> None:
    x = input_node(V)
    inner = ops.when_training(x, -x)
    graph = Graph((inner,), (ops.tanh(inner),))
    assert in_phase(graph, training=False) is graph


def test_values_are_those_of_the_operand() -> None:
    x = input_node(V)
    graph = Graph((x,), (ops.when_training(x * 2, x) + 1,))
    found = [evaluate(in_phase(graph, training=t), [np.ones(3)])[0].tolist() for t in (True, False)]
    assert found == [[3, 3, 3], [2, 2, 2]]
