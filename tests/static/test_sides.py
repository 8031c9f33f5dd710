"""Both directions of a cell: the trail of passes, who computes what, what is kept between."""

from __future__ import annotations

import foldbatch as fb
from foldbatch import ops
from foldbatch.static.backends import find_backend
from foldbatch.static.cell import compile_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import Graph, input_node
from foldbatch.static.sides import (
    backward_side,
    cotangents,
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
    assert last.results == optimized(graph, RECURSIVE, training=True).results
    assert compile_cell(graph, RECURSIVE, find_backend("numpy")).graph.results == last.results


def test_each_node_is_computed_by_one_kernel_and_kept_if_another_reads_it():
    graph = optimized(cell_graph(), RECURSIVE, training=True)
    forward = forward_side(graph, RECURSIVE)
    backward = backward_side(graph, RECURSIVE, forward)
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
    graph = optimized(cell_graph(), RECURSIVE, training=True)
    forward = forward_side(graph, RECURSIVE)
    (tanh,) = [node for node in forward.owned if node.op.name == "tanh"]
    backward = backward_side(graph, RECURSIVE, forward, {tanh})
    again = [node for node in backward.owned if node.op.name == "tanh"]
    assert len(again) == 1
    assert again[0] is not tanh
    assert again[0].inputs == tanh.inputs
    assert tanh not in Graph(backward.given, tuple(node for _, node in backward.results)).nodes


def test_cotangents_are_derived_for_what_carries_gradients_only():
    graph = cell_graph()
    seeds, results = cotangents(graph, RECURSIVE)
    assert list(seeds) == [0]
    assert [kind for (kind, _), _ in results] == ["cotangent", "gradient", "gradient"]
    none = Ends(active_outputs=frozenset({0}), trained=False)
    assert cotangents(graph, none)[1] == []
