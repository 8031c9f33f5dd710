"""Kernels as people read them."""

from __future__ import annotations

from foldbatch.engines.llvm.listing import listing
from foldbatch.engines.llvm.loop_texts import TARGET, spell
from foldbatch.static import ops
from foldbatch.static.graph import Graph, input_node
from foldbatch.static.routine_printer import print_routine
from foldbatch.types import TensorType
from tests.static.run_kernel import routine_of_graph


def test_a_listing_shows_statements_and_the_texts_of_loops() -> None:
    x = input_node(TensorType((2, 3)))
    graph = Graph((x,), (ops.softmax(ops.tanh(x[0] * 2.0)), ops.sum(ops.sigmoid(ops.exp(x[:, 1:])), 1)))
    routine = routine_of_graph(graph, target=TARGET)
    title, *lines = listing("cell forward_step", routine).splitlines()
    loops = [statement.loop for statement in routine.statements if statement.loop is not None]
    assert title == "# cell forward_step"
    assert "\n".join(lines).startswith(print_routine(routine))
    assert len(loops) == 2
    for i, loop in enumerate(loops):
        assert f"# loop {i} of cell forward_step\n{spell(loop)}".rstrip() in "\n".join(lines)
