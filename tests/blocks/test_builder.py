"""Building: which lines and which cells a block becomes."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.values import Object
from foldbatch.errors import BlockTypeError
from foldbatch.static.graph import input_node
from foldbatch.types import OBJECT, VOID, TensorType

V = fb.Vector(2)
HALVE = fb.Function(lambda x: x / 2)


def lowered(block):
    return fb.compile(block).lowered


def cells(block):
    return [
        (cell.name, len(s.operands), len(s.outputs))
        for s, cell in zip(lowered(block).model.signatures, lowered(block).model.cells, strict=True)
    ]


def test_the_program_of_a_recursion_reads_like_the_model(golden):
    """Every visit of a node is one call of its case's cell; the program moves numbers only."""
    tree = fb.ForwardDeclaration(output_type=2, name="tree")
    leaf = fb.GetItem("word") >> fb.Scalar("int32") >> fb.Embedding(9, 2)
    node = fb.GetItem("kids") >> fb.Record((tree(), tree())) >> fb.Function(lambda a, b: ops.tanh(a + b))
    tree.resolve_to(fb.OneOf(lambda x: "kids" in x, {False: leaf, True: node}))
    scored = tree() >> fb.Linear(3) >> fb.AllOf(fb.Identity(), fb.Metric("scores")) >> fb.GetItem(0)
    marks = fb.GetItem("marks") >> fb.Map(fb.Scalar()) >> fb.Function(ops.segment_sum)
    golden("tracing_program.py.txt", lowered({"tree": scored, "more": marks} >> fb.Identity()).tracer.source)


@pytest.mark.parametrize(
    ("block", "right"),
    [
        (V >> fb.Linear(2) >> HALVE, [("model", 0, 1)]),
        (fb.AllOf(V >> HALVE, V), [("model[0]", 0, 2)]),
        (V >> fb.AllOf(HALVE, HALVE), [("model[0]", 0, 1)]),  # equal expressions are one
        (V >> HALVE >> fb.Void(), []),
        (V >> HALVE >> fb.Metric("m"), [("model", 0, 0)]),
        (fb.AllOf(V >> HALVE >> fb.Void(), V), [("model[1]", 0, 1)]),
        (
            fb.OneOf(len, {1: V, 2: V}) >> HALVE,
            [("model.case(1)", 0, 1), ("model.case(2)", 0, 1), ("model", 1, 1)],
        ),
        (V >> HALVE >> fb.AllOf(fb.Identity(), HALVE), [("model", 0, 2)]),
        (fb.Map(V >> HALVE) >> fb.Map(HALVE), [("model.map#1", 0, 1), ("model.map#2", 1, 1)]),
        (fb.Map(V) >> fb.Function(ops.segment_sum), [("model.map", 0, 1), ("model.segment_sum", 1, 1)]),
        (fb.Identity(), []),
        (fb.FromTensor(1.0), [("model", 0, 1)]),
    ],
)
def test_tensor_work_that_always_runs_together_is_one_cell(block, right):
    assert cells(block) == right


def test_a_value_that_a_choice_needs_is_computed_before_it_and_read_after_it():
    """The region's work is cut where it must be: what the case reads goes first, the rest at the end."""
    pair = fb.AllOf(fb.GetItem("kind"), fb.GetItem("x") >> V >> HALVE)
    chosen = pair >> fb.AllOf(
        fb.OneOf(fb.GetItem(0), {"a": fb.GetItem(1) >> fb.Linear(2), "b": fb.GetItem(1)}), fb.GetItem(1)
    )
    block = chosen >> fb.Function(lambda y, x: x * y)
    assert cells(block) == [("model[1]", 0, 1), ("model[0].case('a')", 1, 1), ("model", 2, 1)]
    assert block.eval({"kind": "b", "x": [2, 4]}).tolist() == [1.0, 4.0]


def test_objects_and_tensors_that_pass_through_cost_no_call():
    block = fb.AllOf(fb.Identity(), V) >> fb.OneOf(
        fb.GetItem(0) >> fb.InputTransform(len), {2: fb.GetItem(1)}
    )
    program = fb.compile(block)
    assert program.describe([[1, 2]]).calls == 1  # the vector's


def test_parameters_are_noted_in_the_order_in_which_blocks_read_them():
    builder = Builder()
    weights = [fb.Parameter(TensorType((2,)), 0.0, f"w{i}") for i in range(4)]
    with builder.define(builder.declare("f", "f", OBJECT, VOID), "f") as argument:
        x = V.build(builder, argument)
        fb.Function(lambda x: (x + weights[2]) * weights[1]).build(builder, x)
        fb.FromTensor(weights[3]).build(builder, x)
        fb.Function(lambda x: x * weights[0] + weights[1]).build(builder, x)
    assert list(builder.parameters) == [weights[2], weights[1], weights[3], weights[0]]


def test_a_tensor_of_another_program_is_refused():
    stranger = input_node(TensorType((2,)))
    with pytest.raises(AssertionError, match="a tensor of another region is read"):
        fb.compile(V >> fb.Function(lambda x: x + stranger))


def test_elements_of_a_sequence_leave_a_region_only_summed():
    each = fb.Map(V) >> fb.Function(ops.tanh)
    for make in (
        lambda: each,
        lambda: fb.AllOf(each),
        lambda: each >> fb.Metric("m"),
        lambda: fb.AllOf(each, fb.GetItem(0)) >> fb.OneOf(fb.GetItem(1), {1: fb.GetItem(0)}),
    ):
        with pytest.raises(BlockTypeError, match="expected one tensor, found a float32"):
            fb.compile(make())
    assert (each >> fb.Function(ops.segment_sum)).eval([[0, 0]]).tolist() == [0.0, 0.0]


def test_an_object_knows_the_place_where_it_was_found():
    builder = Builder()
    with builder.define(builder.declare("f", "f", OBJECT, VOID), "f") as argument:
        inner = (fb.GetItem("a") >> fb.InputTransform(len) >> fb.GetItem(2)).build(builder, argument)
    assert isinstance(inner, Object)
    assert inner.place == ("['a']", "[2]")
