"""Boxes: one for every value and every result, after those that it reads."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

import foldbatch as fb
from foldbatch.static import ops
from foldbatch.static.cell import stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import CONSTANT, constant, input_node
from foldbatch.types import TensorType
from foldbatch.views.boxes import boxes
from tests.programs import BlockProgram, programs
from tests.views.explained import explained, textbook, tree_node

V = TensorType((3,))


def test_the_drawing_is_as_it_has_been_read() -> None:
    """Its boxes, forward: key, title, kind, and what it reads."""
    found = [(box.key, box.title, box.kind, box.reads) for box in boxes(explained(textbook()))]
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
    found = boxes(explained(tree_node()), backward=True)
    kinds = {box.kind: box.title for box in found if not box.reads}
    assert set(kinds) == {"operand", "feed", "cotangent", "kept", "parameter", "constant"}
    results = {box.title for box in found if box.kind == "result"}
    assert results == {"cotangent of x0", "gradient of w", "gradient of v"}
    assert {box.kind for box in found if box.reads} == {"step", "after", "result"}


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(dropout=True))
def test_every_node_has_a_box_and_boxes_come_after_what_they_read(problem: BlockProgram) -> None:
    for cell in fb.compile(problem.block, backend="numpy").model.cells:
        found = explained(cell)
        for backward, graph in ((False, found.graph_after), (True, cell.backward_graph)):
            known: set[str] = set()
            for box in boxes(found, backward=backward):
                assert set(box.reads) <= known
                assert box.key not in known
                known.add(box.key)
            assert {found.names[node] for node in graph.nodes if node.op is not CONSTANT} <= known


def test_a_result_that_is_only_passed_on_is_drawn_from_its_source() -> None:
    x = input_node(V)
    cell = stage_cell(CellGraph("c", (x,), (), (x, ops.batched(constant([0.0, 0.0, 0.0])))), Ends())
    drawn = {box.key: box for box in boxes(explained(cell))}
    assert drawn["result 0"].reads == ("x0",)
    assert len(drawn["result 1"].reads) == 1


def test_a_gradient_that_is_a_sum_of_rows_is_drawn_with_its_values_and_ids() -> None:
    """No routine computes it: it is summed when all have run."""
    model = fb.Scalar("int32") >> fb.Embedding(9, 4, name="words") >> fb.Function(lambda h: ops.sum(h * h))
    (cell,) = fb.compile(model >> fb.Loss(), backend="numpy").model.cells
    found = boxes(explained(cell), backward=True)
    (gradient,) = [box for box in found if box.kind == "result"]
    (rows,) = [box for box in found if box.key in gradient.reads]
    assert (gradient.title, rows.kind, rows.title.split()[1]) == (
        "gradient of words.weight",
        "after",
        "sum_rows",
    )
    assert "f0" in rows.reads
