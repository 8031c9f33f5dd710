"""What is said of a cell is what was compiled."""

import re
from collections.abc import Callable

import numpy as np
from hypothesis import HealthCheck, given, settings

import foldbatch as fb
from foldbatch.engines.numpy import TARGET
from foldbatch.static import ops
from foldbatch.static.cell import Cell, stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import Graph, input_node
from foldbatch.static.printer import expression, print_graph
from foldbatch.types import TensorType
from foldbatch.views.explain import (
    StageParts,
    name_nodes,
    parts_of,
    planned,
    unplanned,
)
from tests.programs import BlockProgram, programs
from tests.views.explained import explained, textbook, tree_node

V = TensorType((3,))


def test_the_text_is_as_it_has_been_read(golden: Callable[[str, str], None]) -> None:
    """Every section, for a small recursive cell with a loss and a frozen weight."""
    golden("explanation.txt", f"{explained(tree_node())}\n")


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(dropout=True))
def test_every_cell_can_be_explained(problem: BlockProgram) -> None:
    """Its passes end at what was staged, and every node that is computed has a stage."""
    for cell in fb.compile(problem.block, backend="numpy").model.cells:
        found = explained(cell)
        assert str(found)
        last = found.passes[-1].graph if found.passes else found.graph_before
        assert last.outputs == found.graph_after.outputs == cell.graph.results
        forward = str(found).partition("stages forward")[2].partition("stages backward")[0]
        for node in found.graph_after.nodes:
            assert not node.inputs or f"    {found.names[node]} = " in forward


def test_training_and_inference_are_told_apart() -> None:
    x = input_node(V)
    graph = CellGraph("c", (x,), (), (ops.when_training(ops.tanh(x) * x, ops.exp(x)),))
    found = explained(stage_cell(graph, Ends()))
    assert found.passes[0].name == "in_phase"
    text = str(found)
    assert "exp" not in text.partition("stages forward")[2].partition("graph in inference")[0]
    assert "graph in inference, 1 op\n" in text
    assert "exp(x0)" in text.split("graph in inference")[1]


def words(embed: fb.Block) -> Cell:
    """Return the cell of a layer, with a loss, on looked up words."""
    model = fb.Scalar("int32") >> embed >> fb.Linear(4, name="out") >> fb.Function(lambda h: ops.sum(h * h))
    (cell,) = fb.compile(model >> fb.Loss(), backend="numpy").model.cells
    return cell


def test_a_gradient_comes_from_routines_or_is_a_sum_of_rows() -> None:
    cell = words(fb.Embedding(9, 4, name="words"))
    text = f"{explained(cell)}\n"
    assert re.search(r"out\.weight: .*; gradient dense, from backward_before\n", text)
    (values,) = re.findall(r"words\.weight: .*; gradient sparse, rows of (%\d+) summed by f0\n", text)
    assert f" {values} = " in text.partition("stages backward")[2]


def test_ends_are_called_as_in_kernels_and_the_rest_is_numbered():
    cell = tree_node()
    names = name_nodes(cell, [], {})
    assert [names[x] for x in cell.graph.inputs] == ["x0", "f0"]
    (h,) = cell.graph.outputs
    assert print_graph(Graph(cell.built.inputs, (h,)), names).endswith(f"\nreturn ({names[h]})")
    assert {names[x] for x in cell.backward_graph.inputs} >= {"x0", "f0", "g0"}
    computed = [names[node] for node in cell.built.joined.nodes if node.inputs]
    assert computed == [f"%{i}" for i in range(len(computed))]


def test_a_node_is_written_as_a_call_of_its_op_with_small_constants_in_it():
    x = input_node(V)
    many = np.arange(9, dtype="float32")
    results = (ops.sum(x, axis=0) * 2, ops.concat([x, x, x]) * many)
    cell = stage_cell(CellGraph("c", (x,), (), results), Ends())
    names = name_nodes(cell, [], {})
    assert [expression(node, names) for node in cell.graph.outputs] == [
        "multiply(%0, 2.0)",
        "multiply(%2, constant of shape (9,))",
    ]
    assert expression(results[0].inputs[0], names) == "sum(x0, axes=(0,))"


def staged(cell: Cell, *, training: bool = True) -> StageParts:
    return parts_of(cell.phase(training=training), TARGET)


def cells() -> list[Cell]:
    """Return cells with views, sections, sparse gradients, kept values and sequences."""
    word = fb.Scalar("int32") >> fb.Embedding(9, 4, name="words")
    tree = fb.ForwardDeclaration(output_type=[4], name="tree")
    cell = fb.Function(lambda a, b: ops.tanh(ops.concat([a * b, ops.exp(a)])))
    inner = fb.Record((tree(), tree())) >> cell >> fb.Linear(4)
    tree.resolve_to(fb.OneOf(lambda x: isinstance(x, int), {True: word, False: inner}))
    root = tree() >> fb.Function(lambda h: ops.sum(ops.square(h))) >> fb.Loss()
    softmax = fb.Map(fb.Scalar()) >> fb.Function(lambda x: ops.segment_sum(x * x - 1)) >> fb.Loss()
    programs = [fb.compile(block, backend="numpy") for block in (root, softmax)]
    return [textbook(), tree_node(), *(cell for program in programs for cell in program.model.cells)]


def test_the_textbook_case_takes_two_buffers_instead_of_four():
    cell = textbook()
    text = str(explained(cell)).partition("  buffers\n")[2]
    assert re.findall(r"(s\d) scratch of forward_before: .*: (.*)", text) == [
        ("s0", "%0, %2, %3"),
        ("s1", "%1"),
    ]
    assert re.findall(r"(%\d) overwrites (%\d)", text) == [("%2", "%0"), ("%3", "%2")]
    assert (planned(staged(cell)), unplanned(staged(cell))) == ({"N": 32}, {"N": 64})


def test_a_plan_never_takes_more_than_a_buffer_each():
    for cell in cells():
        for parts in (staged(cell), staged(cell, training=False)):
            most = unplanned(parts)
            assert all(size <= most[axis] for axis, size in planned(parts).items())
