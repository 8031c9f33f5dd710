"""Nodes have one name each, and keep it through the passes."""

from __future__ import annotations

import numpy as np

from foldbatch.params import Parameter
from foldbatch.static import ops
from foldbatch.static.cell import stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import Graph, input_node, parameter_node
from foldbatch.static.printer import expression, print_graph
from foldbatch.types import TensorType
from foldbatch.views.naming import joined, name_nodes
from tests.views.explained import tree_node

V = TensorType((3,))


def test_ends_are_called_as_in_kernels_and_the_rest_is_numbered():
    cell = tree_node()
    names = name_nodes(cell, [], {})
    assert [names[x] for x in cell.graph.inputs] == ["x0", "f0"]
    (h,) = cell.graph.outputs
    assert print_graph(Graph(cell.built.inputs, (h,)), names).endswith(f"\nreturn ({names[h]})")
    assert {names[x] for x in cell.backward_graph.inputs} >= {"x0", "f0", "g0"}
    computed = [names[node] for node in joined(cell.built).nodes if node.inputs]
    assert computed == [f"%{i}" for i in range(len(computed))]


def test_no_two_nodes_share_a_name_even_where_their_parameters_do():
    x = input_node(V)
    one, two = Parameter(V, name="w"), Parameter(V, name="w")
    cell = stage_cell(CellGraph("c", (x,), (), (x * one + two,)), Ends())
    names = name_nodes(cell, [], {})
    assert (names[parameter_node(one)], names[parameter_node(two)]) == ("w", "w_1")
    known = name_nodes(cell, [], {one: "here.w", two: "there.w"})
    assert (known[parameter_node(one)], known[parameter_node(two)]) == ("here.w", "there.w")


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
