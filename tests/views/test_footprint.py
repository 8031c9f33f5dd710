"""Buffers as they are in kernels, and sums that follow from them."""

from __future__ import annotations

import foldbatch as fb
from foldbatch.engines.numpy import TARGET
from foldbatch.static import ops
from foldbatch.static.cell import Cell, stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import input_node
from foldbatch.static.routines import Target
from foldbatch.static.stages import is_view
from foldbatch.types import TensorType
from foldbatch.views.explain import (
    NamedBuffer,
    StageParts,
    buffers,
    name_nodes,
    parts_of,
    planned,
    recomputed,
    unplaced,
    unplanned,
)
from tests.views.explained import textbook, tree_node

V = TensorType((3,))


def staged(cell: Cell, *, training: bool = True) -> StageParts:
    """Return the stages of one phase, with the routines of the NumPy engine."""
    return parts_of(cell.phase(training=training), TARGET)


def found_in(cell: Cell) -> dict[str, list[NamedBuffer]]:
    """Return the buffers of what trains a cell, by routine."""
    found: dict[str, list[NamedBuffer]] = {}
    for buffer in buffers(staged(cell), name_nodes(cell, [], {})):
        found.setdefault(buffer.routine, []).append(buffer)
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
    assert (planned(staged(cell)), unplanned(staged(cell))) == ({"N": 32}, {"N": 64})


def test_what_stages_hand_on_is_kept_and_its_readers_are_known():
    found = [b for bs in found_in(tree_node()).values() for b in bs if b.kind == "kept"]
    written = {b.routine: set(b.readers) for b in found}
    assert written == {
        "forward_before": {"forward_step"},
        "forward_step": {"forward_after", "backward_step"},
        "forward_after": {"backward_step"},
        "backward_step": {"backward_after"},
    }


def test_bytes_are_counted_by_axis_and_scratch_of_one_type_once():
    parts = staged(tree_node())
    assert {axis: planned(parts)[axis] <= size for axis, size in unplanned(parts).items()} == {
        "N": True,
        "1": True,
    }
    by_name = {part.name: part for part in parts}
    one = (by_name["backward_step"],)
    two = (by_name["forward_step"], *one)
    kept = sum(node.type.nbytes for node in two[0].stage.kept)
    assert planned(two)["N"] == planned(one)["N"] + kept, "the step's scratch is there already"


def test_every_value_has_a_place():
    """Over cells of all kinds: a buffer, a section, or a view of one."""
    for cell in cells():
        names = name_nodes(cell, [], {})
        parts = staged(cell)
        placed = {name for b in buffers(parts, names) for name in b.nodes}
        placed |= {name for b in buffers(parts, names) for name, _, _ in b.sections}
        computed = {node for part in parts for node in part.computed}
        assert placed == {names[node] for node in computed if not is_view(node)}
        assert unplaced(parts, names) == ()


def test_the_insides_of_a_fused_loop_have_no_place():
    x = input_node(V)
    cell = stage_cell(CellGraph("c", (x,), (), (ops.exp(ops.tanh(x) * 2),)), Ends())
    loops = Target(frozenset(("exp", "tanh")), frozenset(("float32",)))
    parts, names = parts_of(cell.training, loops), name_nodes(cell, [], {})
    (buffer,) = buffers(parts, names)
    assert (buffer.kind, buffer.nodes, unplaced(parts, names)) == ("scratch", ("%2",), ("%0", "%1"))
    assert (planned(parts), unplanned(parts)) == ({"N": 12}, {"N": 36})


def test_a_plan_never_takes_more_than_a_buffer_each():
    for cell in cells():
        for parts in (staged(cell), staged(cell, training=False)):
            most = unplanned(parts)
            assert all(size <= most[axis] for axis, size in planned(parts).items())


def test_views_read_by_two_routines_are_made_twice():
    cell = tree_node()
    names = name_nodes(cell, [], {})
    parts = staged(cell)
    (view,) = recomputed(parts, names)
    assert view.routines == ("forward_step", "backward_after")
    assert [node.op.name for node, name in names.items() if name == view.name] == ["reshape"]
    step = tuple(part for part in parts if part.name == "forward_step")
    assert unplanned(step) == {"N": 3 * 8}, "product, sum and tanh: the view is none of them"
