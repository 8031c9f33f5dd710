"""What is said of a cell is what was compiled."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, given, settings

import foldbatch as fb
from foldbatch.static import ops
from foldbatch.static.cell import compile_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import CONSTANT, constant, input_node
from foldbatch.types import TensorType
from foldbatch.views.explain import boxes, explain_cell, ops_in
from tests.programs import BlockProgram, programs
from tests.static.run_kernel import NUMPY
from tests.views.explained import textbook, tree_node

V = TensorType((3,))


def test_the_text_is_as_it_has_been_read(golden: Callable[[str, str], None]) -> None:
    """Every section, for a small recursive cell with a loss and a frozen weight."""
    golden("explanation.txt", f"{explain_cell(tree_node())}\n")


def test_the_drawing_is_as_it_has_been_read() -> None:
    """Its boxes, forward: key, title, kind, and what it reads."""
    found = [(box.key, box.title, box.kind, box.reads) for box in boxes(explain_cell(textbook()))]
    assert found == [
        ("f0", "f0", "feed", ()),
        ("f1", "f1", "feed", ()),
        ("w", "w", "parameter", ()),
        ("%0", "%0 linear", "before", ("f0", "w")),
        ("v", "v", "parameter", ()),
        ("%1", "%1 linear", "before", ("f1", "v")),
        ("%2", "%2 multiply", "before", ("%0", "%1")),
        ("%3.1", "1.0", "constant", ()),
        ("%3", "%3 add", "before", ("%2", "%3.1")),
        ("result 0", "output 0", "result", ("%3",)),
    ]


def test_backward_boxes_are_what_is_given_what_is_made_and_gradients() -> None:
    found = boxes(explain_cell(tree_node()), backward=True)
    kinds = {box.kind: box.title for box in found if not box.reads}
    assert set(kinds) == {"operand", "feed", "cotangent", "kept", "parameter", "constant"}
    results = {box.title for box in found if box.kind == "result"}
    assert results == {"cotangent of x0", "gradient of w", "gradient of v"}
    assert {box.kind for box in found if box.reads} == {"step", "after", "result"}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(dropout=True))
def test_every_cell_can_be_explained(problem: BlockProgram) -> None:
    """Its passes end at what was compiled; every node has a box; boxes come after what they read."""
    for cell in fb.compile(problem.block, backend="numpy").model.cells:
        found = explain_cell(cell)
        assert str(found)
        last = found.passes[-1].graph if found.passes else found.graph_before
        assert last.outputs == found.graph_after.outputs == cell.graph.results
        assert {p.name for p in found.stages if p.direction == "forward"} >= {
            found.names[node] for node in found.graph_after.nodes if node.inputs
        }
        for backward, graph in ((False, found.graph_after), (True, cell.backward_graph)):
            known: set[str] = set()
            for box in boxes(found, backward=backward):
                assert set(box.reads) <= known
                assert box.key not in known
                known.add(box.key)
            assert {found.names[node] for node in graph.nodes if node.op is not CONSTANT} <= known


def test_passes_that_change_nothing_are_left_out() -> None:
    x = input_node(V)
    plain = compile_cell(CellGraph("c", (x,), (), (ops.tanh(x),)), Ends(), NUMPY)
    assert explain_cell(plain).passes == ()
    doubled = compile_cell(CellGraph("c", (x,), (), (ops.tanh(x) * (constant(1.0) + 0),)), Ends(), NUMPY)
    found = explain_cell(doubled)
    assert [(step.name, step.ops) for step in found.passes] == [("fold_constants", 2), ("simplify", 1)]
    assert ops_in(found.graph_before) == 3


def test_training_and_inference_are_told_apart() -> None:
    x = input_node(V)
    graph = CellGraph("c", (x,), (), (ops.when_training(ops.tanh(x) * x, ops.exp(x)),))
    found = explain_cell(compile_cell(graph, Ends(), NUMPY))
    assert found.passes[0].name == "in_phase"
    assert "exp" not in "".join(p.expression for p in found.stages)
    text = str(found)
    assert "graph in inference, 1 op\n" in text
    assert "exp(x0)" in text.split("graph in inference")[1]


def test_gradients_say_whether_they_are_sparse_frozen_or_none() -> None:
    table = fb.Embedding(9, 4, name="words")
    model = fb.Scalar("int32") >> table >> fb.Linear(4, name="out") >> fb.Function(lambda h: ops.sum(h * h))
    (cell,) = fb.compile(model >> fb.Loss(), backend="numpy").model.cells
    found = {weight.name: weight for weight in explain_cell(cell).parameters}
    assert (found["words.weight"].sparse, found["words.weight"].gradient) == (True, ("backward_before",))
    assert (found["out.weight"].sparse, found["out.weight"].gradient) == (False, ("backward_before",))
    frozen = next(weight for weight in explain_cell(tree_node()).parameters if weight.name == "scale")
    assert (frozen.trainable, frozen.gradient) == (False, ())
    assert frozen.readers == ("forward_after", "backward_step")
    assert all(weight.gradient == () for weight in explain_cell(textbook()).parameters)


def test_a_result_that_is_only_passed_on_is_drawn_from_its_source() -> None:
    x = input_node(V)
    cell = compile_cell(CellGraph("c", (x,), (), (x, ops.batched(constant([0.0, 0.0, 0.0])))), Ends(), NUMPY)
    drawn = {box.key: box for box in boxes(explain_cell(cell))}
    assert drawn["result 0"].reads == ("x0",)
    assert len(drawn["result 1"].reads) == 1
