"""Explanations of cells, in text and pictures, and how they show themselves."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import foldbatch as fb
from foldbatch.engines.numpy import TARGET
from foldbatch.errors import UnknownNameError
from foldbatch.static import ops
from foldbatch.static.cell import Cell, stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import Graph, input_node
from foldbatch.static.printer import expression, print_graph
from foldbatch.types import TensorType
from foldbatch.views.explain import StageParts, name_nodes, parts_of, planned, unplanned
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


NODE = "{http://www.w3.org/2000/svg}g[@class='node']"


def tree() -> fb.Block:
    """Sums over trees of numbers, with a weight and a loss."""
    total = fb.ForwardDeclaration(output_type=[2], name="tree")
    pair = fb.Record((total(), total())) >> fb.Concat() >> fb.Linear(2, "tanh", name="pair")
    total.resolve_to(fb.OneOf(lambda x: isinstance(x, tuple), {False: fb.Vector(2), True: pair}))
    return total() >> fb.Function(lambda h: fb.ops.sum(h * h)) >> fb.Loss()


@pytest.fixture
def program() -> fb.Program:
    return fb.compile(tree(), backend="numpy")


def test_a_program_is_explained_cell_by_cell(program):
    found = fb.explain(program)
    assert [cell.cell for cell in found.cells] == list(program.model.cells)
    assert str(found) == found.whole() == "\n\n".join([f"tracing: {found.tracing}", *map(str, found.cells)])
    names = "tree[False], tree[True], model"
    assert repr(found) == f"Explanation(3 cells: {names}; print it to read it)"
    assert repr(found.cells[0]).startswith("CellExplanation('tree[False]', ")


def test_of_many_cells_there_is_a_line_each():
    """And the last line says how to see them."""
    cases = {k: fb.Vector(2) >> fb.Linear(2) for k in range(20)}
    program = fb.compile(fb.OneOf(len, cases), "numpy")
    found = fb.explain(program)
    _, _, title, header, *rows, last = str(found).splitlines()
    assert title == "20 cells"
    assert header.split("  ")[0] == "cell"
    assert [row.split()[0] for row in rows] == [cell.name for cell in program.model.cells]
    assert last.startswith("explain(program, name) shows the cells whose names contain it")
    assert found.whole().count("graph as built") == 20
    assert repr(found).endswith("model(len=2), ...; print it to read it)")
    assert found._repr_html_().count("graph as built") == 20


def test_how_examples_are_traced_is_told():
    program = fb.compile(fb.GetItem("label") >> fb.Scalar(), "numpy")
    assert str(fb.explain(program)).startswith("tracing: by the program, visit by visit")
    assert fb.explain(program.model.cells[0]).tracing == ""


def recursive(key_fn, leaf):
    tree = fb.ForwardDeclaration(output_type=[], name="tree")
    tree.resolve_to(fb.OneOf(key_fn, (leaf, fb.GetItem(0) >> tree())))
    return tree()


def test_a_whole_name_chooses_one_cell_alone():
    """Though it is a part of others."""
    program = fb.compile(fb.OneOf(len, {k: fb.Vector(2) for k in (1, 2)}) >> fb.Linear(2), "numpy")
    assert [cell.name for cell in fb.explain(program, "model").cells] == ["model"]
    assert len(fb.explain(program, "mode").cells) == 3


def test_a_part_of_the_name_chooses_cells(program):
    found = fb.explain(program, "[True]")
    assert [cell.name for cell in found.cells] == ["tree[True]"]
    assert str(found).startswith("cell tree[True] (recursive: x0, output 0)\n")


@pytest.mark.parametrize("name", ["case(Maybe)", "TREE", 7, None])
def test_a_name_that_no_cell_has_is_refused_with_those_there_are(program, name):
    with pytest.raises(UnknownNameError) as caught:
        fb.explain(program, name)
    names = ", ".join(cell.name for cell in program.model.cells)
    assert str(caught.value) == f"explain: expected a part of the name of a cell ({names}), found {name!r}"


def test_a_block_is_compiled_first_and_a_cell_stands_for_itself(program):
    block, cells = fb.explain(tree()), fb.explain(program)
    assert [cell.name for cell in block.cells] == [cell.name for cell in cells.cells]
    (one,) = fb.explain(program.model.cells[0]).cells
    assert one.cell is program.model.cells[0]
    with pytest.raises(UnknownNameError):
        fb.explain(program.model.cells[0], "elsewhere")


def test_parameters_have_the_programs_names():
    """Two layers of one name are told apart as in `program.params`."""
    layers = fb.Vector(2) >> fb.Linear(2, name="a") >> fb.Linear(2, name="a")
    program = fb.compile(layers, backend="numpy")
    (cell,) = fb.explain(program).cells
    listed = str(cell).partition("  parameters\n")[2].partition("  routines")[0].splitlines()
    assert [line.split(":")[0].strip() for line in listed] == list(program.params)


def test_things_show_themselves():
    pair = fb.Map(fb.Vector(2) >> fb.Linear(3, name="<pair>")) >> fb.Sum()
    model = pair >> fb.AllOf(fb.Function(fb.ops.sum) >> fb.Loss(), fb.Metric("m")) >> fb.GetItem(0)
    program, examples = fb.compile(model, "numpy"), [[[1, 2], [3, 4]], [[5, 6]]]
    step = program.step(examples)
    shown = [
        (
            program,
            [".sum: [float32[3], ...] -&gt; float32, ", "&lt;pair&gt;.weight: float32[2,3]", "backend numpy"],
        ),
        (program.describe(examples), ["2 examples: 5 calls of 2 cells"]),
        (fb.explain(program), ["graph as built"]),
        (
            fb.bench(model, examples[:1], repeats=1),
            ["1 example, 3 calls; in batches of 1 ", "medians of 1 run\n"],
        ),
        (fb.trees.parse_brackets("(a (b &) (b c))"), ["└─ ", "b &amp;"]),
        (step.metrics["m"], ["2 values float32[3] of 2 examples", "[["]),
        (fb.views.draw_schedule(program, examples), ["<svg"]),
    ]
    for thing, parts in shown:
        html = thing._repr_html_()
        assert all(part in html for part in parts), html
    assert step.metrics._repr_html_().startswith("<pre>m: MetricValues(2 values")


def test_of_many_cells_and_parameters_a_few_are_shown():
    many = fb.AllOf(*(fb.Linear(2, name=f"layer{i}") for i in range(30))) >> fb.Concat()
    assert str(fb.compile(fb.Vector(2) >> many, "numpy")).count("\n  layer") == 20
