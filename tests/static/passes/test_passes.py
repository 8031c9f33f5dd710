"""The pipeline: every pass keeps what a graph means, and a pass that breaks one is named."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from foldbatch.static import ops, passes
from foldbatch.static.graph import Graph, input_node
from foldbatch.types import TensorType
from tests.static.passes.checks import check_law
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
