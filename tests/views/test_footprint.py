"""Buffers as they are in kernels, and sums that follow from them."""

from __future__ import annotations

import re

import foldbatch as fb
from foldbatch.static import ops
from foldbatch.static.cell import Cell, compile_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import SOURCES, input_node
from foldbatch.static.stages import is_view
from foldbatch.types import TensorType
from foldbatch.views.footprint import Buffer, buffers, planned, recomputed, unplaced, unplanned
from foldbatch.views.naming import name_nodes
from tests.static.run_kernel import NUMPY
from tests.views.explained import textbook, tree_node

V = TensorType((3,))


def found_in(cell: Cell, *, training: bool = True) -> dict[str, list[Buffer]]:
    """Return the buffers of the kernels of one phase, by kernel."""
    parts = {name: part for name, part in cell.parts.items() if name.startswith("infer_") != training}
    found: dict[str, list[Buffer]] = {}
    for buffer in buffers(parts, name_nodes(cell, [], {})):
        found.setdefault(buffer.kernel, []).append(buffer)
    return found


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
    s0, s1 = found_in(cell)["forward_before"]
    assert (s0.name, s0.nodes, s0.in_place) == ("s0", ("%0", "%2", "%3"), (("%2", "%0"), ("%3", "%2")))
    assert (s1.name, s1.nodes, s1.in_place) == ("s1", ("%1",), ())
    assert (planned(cell.parts), unplanned(cell.parts)) == ({"N": 32}, {"N": 64})


def test_what_stages_hand_on_is_kept_and_its_readers_are_known():
    found = [b for bs in found_in(tree_node()).values() for b in bs if b.kind == "kept"]
    written = {b.kernel: set(b.readers) for b in found}
    assert written == {
        "forward_before": {"forward_step"},
        "forward_step": {"forward_after", "backward_step"},
        "forward_after": {"backward_step"},
        "backward_step": {"backward_after"},
    }


def test_cotangents_written_where_they_belong_are_stores():
    a = input_node(V)
    active = Ends(active_operands=frozenset((0,)))
    cell = compile_cell(CellGraph("c", (a,), (), (), (ops.sum(ops.tanh(a)),)), active, NUMPY)
    (store,) = [b for b in found_in(cell)["backward_before"] if b.kind == "store"]
    assert (store.name, store.nbytes, len(store.nodes)) == ("d0", 12, 1)


def test_sections_say_which_elements():
    a, b = input_node(V), input_node(V)
    graph = CellGraph("c", (a, b), (), (ops.concat([ops.exp(a), ops.tanh(b)]),))
    cell = compile_cell(graph, Ends(), NUMPY)
    (whole,) = found_in(cell)["forward_before"]
    assert whole.type == TensorType((6,))
    assert [(start, stop) for _, start, stop in whole.sections] == [(0, 3), (3, 6)]
    assert unplanned(cell.parts) == {"N": 48}


def test_bytes_are_counted_by_axis_and_scratch_of_one_type_once():
    cell = tree_node()
    assert {axis: planned(cell.parts)[axis] <= size for axis, size in unplanned(cell.parts).items()} == {
        "N": True,
        "1": True,
    }
    one = {name: part for name, part in cell.parts.items() if name == "backward_step"}
    two = one | {name: part for name, part in cell.parts.items() if name == "forward_step"}
    kept = sum(node.type.nbytes for node in two["forward_step"].buffers)
    assert planned(two)["N"] == planned(one)["N"] + kept, "the step's scratch is there already"


def test_every_value_has_a_place_or_is_said_to_have_none():
    """Over cells of all kinds: a buffer, a section, a view of one, or a sparse gradient."""
    for cell in cells():
        names = name_nodes(cell, [], {})
        placed = {name for b in buffers(cell.parts, names) for name in b.nodes}
        placed |= {name for b in buffers(cell.parts, names) for name, _, _ in b.sections}
        computed = {n for part in cell.parts.values() for n in part.graph.nodes if n.op not in SOURCES}
        values = {names[node] for node in computed if not is_view(node)}
        without = set(unplaced(cell.parts, names))
        assert placed | without == values
        assert {node.op.name for node in computed if names[node] in without - placed} <= {"sum_rows"}


def test_buffers_are_called_as_in_the_kernels_text():
    for cell in cells():
        for kernel, found in (found_in(cell) | found_in(cell, training=False)).items():
            sides = {"forward": cell.forward, "backward": cell.backward, "infer": cell.inference}
            source = sides[kernel.split("_")[0]][kernel.split("_")[-1]].source
            arguments = set(re.split(r"[(), ]+", source.splitlines()[0]))
            assert {b.name for b in found} <= arguments
            assert {a for a in arguments if re.fullmatch(r"s\d+", a)} == {
                b.name for b in found if b.kind == "scratch"
            }


def test_a_plan_never_takes_more_than_a_buffer_each():
    for cell in cells():
        for parts in (cell.parts, {k: v for k, v in cell.parts.items() if k.startswith("infer")}):
            most = unplanned(parts)
            assert all(size <= most[axis] for axis, size in planned(parts).items())


def test_rows_of_a_sparse_gradient_need_no_buffer():
    word = fb.compile(
        fb.Scalar("int32") >> fb.Embedding(9, 4) >> fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss(),
        "numpy",
    )
    (cell,) = word.model.cells
    names = name_nodes(cell, [], {})
    (rows,) = unplaced(cell.parts, names)
    assert [node.op.name for node, name in names.items() if name == rows] == ["sum_rows"]
    assert "1" not in unplanned(cell.parts)


def test_views_read_by_two_kernels_are_made_twice():
    cell = tree_node()
    names = name_nodes(cell, [], {})
    parts = {name: part for name, part in cell.parts.items() if not name.startswith("infer")}
    (view,) = recomputed(parts, names)
    assert view.kernels == ("forward_step", "backward_after")
    assert [node.op.name for node, name in names.items() if name == view.name] == ["reshape"]
    step = {"forward_step": parts["forward_step"]}
    assert unplanned(step) == {"N": 3 * 8}, "product, sum and tanh: the view is none of them"
