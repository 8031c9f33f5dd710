"""A cell before it is compiled: its ends, and the bounds of the indices it is fed."""

from __future__ import annotations

from foldbatch import ops
from foldbatch.params.parameters import Parameter
from foldbatch.static.cellgraph import CellGraph, feed_bounds, index_source, transformed, weights_of
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


def test_a_table_that_is_looked_up_is_no_weight():
    """Whether the cell is trained or not; one that is also multiplied by is."""
    table, weight = Parameter([100, 3], name="table"), Parameter([3, 2], name="weight")
    word = input_node(TensorType((), "int32"))
    looked_up = ops.matmul(ops.gather(table, word), weight)
    assert weights_of(CellGraph("cell", (), (word,), (looked_up,))) == 6
    whole = ops.sum(ops.square(ops.multiply(table, 1.0)))
    assert weights_of(CellGraph("cell", (), (word,), (looked_up, ops.batched(whole)))) == 306


def test_of_a_table_of_weights_a_call_is_multiplied_by_one():
    table, x = Parameter([100, 3, 2], name="table"), input_node(TensorType((3,)))
    label = input_node(TensorType((), "int32"))
    product = x @ ops.gather(table, label)
    assert weights_of(CellGraph("cell", (x,), (label,), (product,))) == 6
    whole = ops.sum(ops.multiply(table, table))
    assert weights_of(CellGraph("cell", (x,), (label,), (product, ops.batched(whole)))) == 600
