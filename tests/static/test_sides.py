"""Both directions of a cell: the trail of passes, who computes what, what is kept between."""

from __future__ import annotations

import foldbatch as fb
from foldbatch import ops
from foldbatch.static.cell import stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import Graph, input_node
from foldbatch.static.sides import (
    Staged,
    backward_side,
    forward_side,
    kept_between,
    optimized,
    owners,
    trail,
)
from foldbatch.types import TensorType

RECURSIVE = Ends(*(frozenset({0}) for _ in range(4)))


def cell_graph() -> CellGraph:
    h, x = input_node(TensorType((3,))), input_node(TensorType((2,)))
    weight, other = fb.Parameter([2, 3], name="w"), fb.Parameter([3, 3], name="u")
    new = ops.tanh(ops.matmul(x, weight) + ops.matmul(h, other))
    loss = ops.sum(new * new)
    return CellGraph("rnn", (h,), (x,), (new,), (loss,))


def test_the_trail_of_passes_ends_at_the_graph_that_is_compiled():
    graph = cell_graph()
    *_, (name, last) = trail(graph, RECURSIVE, training=True)
    assert name == "sum_early"
    staged = optimized(graph, RECURSIVE, training=True)
    assert last.results == staged.graph.results
    assert staged.forward.stage == forward_side(last, RECURSIVE).stage
    assert stage_cell(graph, RECURSIVE).graph.results == last.results


def test_each_node_is_computed_by_one_kernel_and_kept_if_another_reads_it():
    staged = optimized(cell_graph(), RECURSIVE, training=True)
    forward = staged.forward
    backward = backward_side(staged, RECURSIVE)
    owner = owners([forward, backward])
    assert {owner[n] for n in owner if n.op.name == "linear" and n in forward.owned} == {
        (0, "before"),
        (0, "step"),
    }
    kept = kept_between([forward, backward])
    assert all(owner[node] == key for node, key in kept.items())
    (tanh,) = [node for node in forward.owned if node.op.name == "tanh"]
    assert kept[tanh] == (0, "step")  # its derivative reads it, and so does the loss


def test_what_is_computed_again_is_a_node_of_its_own():
    staged = optimized(cell_graph(), RECURSIVE, training=True)
    forward = staged.forward
    (tanh,) = [node for node in forward.owned if node.op.name == "tanh"]
    backward = backward_side(staged, RECURSIVE, {tanh})
    again = [node for node in backward.owned if node.op.name == "tanh"]
    assert len(again) == 1
    assert again[0] is not tanh
    assert again[0].inputs == tanh.inputs
    assert tanh not in Graph(backward.given, tuple(node for _, node in backward.results)).nodes


def test_sums_of_rows_are_told_apart_from_other_gradients():
    """One for each look-up, though a parameter's gradient is their sum; what they read is left for the engine."""
    table, ids = fb.Parameter([5, 3], name="table"), [input_node(TensorType((), "int32")) for _ in range(2)]
    first, second = (ops.gather(table, i) for i in ids)
    graph = CellGraph("cell", (), tuple(ids), (), (ops.sum(ops.tanh(first) * second),))
    staged = Staged(graph, forward_side(graph, Ends()))
    side = backward_side(staged, Ends())
    assert side.results == ()
    assert [gradient.parameter for gradient in side.rows] == [table, table]
    assert {gradient.ids for gradient in side.rows} == set(ids)
    assert all(gradient.node.inputs == (gradient.values, gradient.ids) for gradient in side.rows)
    values = {gradient.values for gradient in side.rows}
    assert side.left == values - staged.forward.owned != values  # d/d second = tanh(first): forward has it
    assert values <= set(kept_between([staged.forward, side]))


def test_the_gradient_of_a_row_that_is_the_same_for_all_calls_is_no_sum_of_rows():
    table = fb.Parameter([5, 3], name="table")
    x = input_node(TensorType((3,)))
    graph = CellGraph("cell", (), (x,), (), (ops.sum(x * ops.gather(table, 2)),))
    side = backward_side(Staged(graph, forward_side(graph, Ends())), Ends())
    assert side.rows == ()
    assert [what for what, _ in side.results] == [("gradient", table)]
