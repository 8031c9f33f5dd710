"""A cell before it is compiled: its ends, and the bounds of the indices it is fed."""

from __future__ import annotations

from foldbatch import ops
from foldbatch.params import Parameter
from foldbatch.static.cellgraph import CellGraph, feed_bounds, index_source, transformed
from foldbatch.static.graph import Graph, input_node
from foldbatch.static.op import ragged
from foldbatch.types import TensorType

ID = TensorType((), "int32")


def test_inputs_are_operands_then_feeds_and_results_come_in_three_kinds():
    x, data, several = input_node(TensorType((2,))), input_node(ID), input_node(TensorType((2,)), ragged())
    graph = CellGraph("c", (x, several), (data,), (x,), (ops.sum(x),), (data,))
    assert graph.inputs == (x, several, data)
    assert [node.type for node in graph.results] == [x.type, TensorType(()), ID]
    assert graph.axes == (several.axis,)


def test_a_fed_index_stays_below_the_smallest_table_it_looks_up():
    ids = input_node(ID)
    large, small = Parameter([9, 2]), Parameter([4, 2])
    found = (ops.gather(large, ids), ops.gather(small, ops.cast(ids, "int64")))
    assert feed_bounds(CellGraph("c", (), (ids,), found)) == {ids: 4}
    assert index_source(ops.cast(ids, "int64")) is ids


def test_a_transformation_that_does_nothing_leaves_the_very_cell():
    x = input_node(TensorType((2,)))
    graph = CellGraph("c", (x,), (), (ops.tanh(x),), (ops.sum(x),))
    assert transformed(graph, lambda whole: whole) is graph
    swapped = transformed(graph, lambda whole: Graph(whole.inputs, (ops.exp(x), whole.outputs[1])))
    assert swapped.outputs == (ops.exp(x),)
    assert swapped.losses == graph.losses
