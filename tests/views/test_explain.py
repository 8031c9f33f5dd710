"""What is said of a cell is what was compiled."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, given, settings

import foldbatch as fb
from foldbatch.static import ops
from foldbatch.static.cell import stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import constant, input_node
from foldbatch.types import TensorType
from foldbatch.views.explain import ops_in
from tests.programs import BlockProgram, programs
from tests.views.explained import explained, tree_node

V = TensorType((3,))


def test_the_text_is_as_it_has_been_read(golden: Callable[[str, str], None]) -> None:
    """Every section, for a small recursive cell with a loss and a frozen weight."""
    golden("explanation.txt", f"{explained(tree_node())}\n")


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(dropout=True))
def test_every_cell_can_be_explained(problem: BlockProgram) -> None:
    """Its passes end at what was staged, and every node that is computed has a stage."""
    for cell in fb.compile(problem.block, backend="numpy").model.cells:
        found = explained(cell)
        assert str(found)
        last = found.passes[-1].graph if found.passes else found.graph_before
        assert last.outputs == found.graph_after.outputs == cell.graph.results
        assert {p.name for p in found.stages if p.direction == "forward"} >= {
            found.names[node] for node in found.graph_after.nodes if node.inputs
        }


def test_passes_that_change_nothing_are_left_out() -> None:
    x = input_node(V)
    plain = stage_cell(CellGraph("c", (x,), (), (ops.tanh(x),)), Ends())
    assert explained(plain).passes == ()
    doubled = stage_cell(CellGraph("c", (x,), (), (ops.tanh(x) * (constant(1.0) + 0),)), Ends())
    found = explained(doubled)
    assert [(step.name, step.ops) for step in found.passes] == [("fold_constants", 2), ("simplify", 1)]
    assert ops_in(found.graph_before) == 3


def test_training_and_inference_are_told_apart() -> None:
    x = input_node(V)
    graph = CellGraph("c", (x,), (), (ops.when_training(ops.tanh(x) * x, ops.exp(x)),))
    found = explained(stage_cell(graph, Ends()))
    assert found.passes[0].name == "in_phase"
    assert "exp" not in "".join(p.expression for p in found.stages)
    text = str(found)
    assert "graph in inference, 1 op\n" in text
    assert "exp(x0)" in text.split("graph in inference")[1]
