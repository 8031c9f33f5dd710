"""Buffers as they are in kernels, and sums that follow from them."""

import foldbatch as fb
from foldbatch.engines.numpy import TARGET
from foldbatch.static import ops
from foldbatch.static.cell import Cell
from foldbatch.views.explain import NamedBuffer, StageParts, buffers, name_nodes, parts_of, planned, unplanned
from tests.views.explained import textbook, tree_node


def staged(cell: Cell, *, training: bool = True) -> StageParts:
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


def test_a_plan_never_takes_more_than_a_buffer_each():
    for cell in cells():
        for parts in (staged(cell), staged(cell, training=False)):
            most = unplanned(parts)
            assert all(size <= most[axis] for axis, size in planned(parts).items())
