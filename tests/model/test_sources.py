"""Cells compiled once more yield gradients of float data, and none of parameters."""

from __future__ import annotations

import foldbatch as fb
from foldbatch import ops
from foldbatch.model.sources import float_reads, with_input_gradients
from foldbatch.static.backends import BACKENDS
from foldbatch.types import TensorType

LOSS = fb.Function(ops.sum) >> fb.Loss()


def yielded(block: fb.Block) -> list[set[str]]:
    found = with_input_gradients(fb.compile(block).lowered, BACKENDS["numpy"])
    return [{kind for k in cell.backward.values() for kind, _ in k.results} for cell in found.cells]


def test_parameters_have_no_gradient_there():
    assert yielded(fb.Vector(2) >> fb.Linear(3) >> LOSS) == [{"feed"}]


def test_gradients_flow_back_through_cells_to_the_data_and_to_nothing_else():
    layer = fb.ForwardDeclaration(2, 2, "layer")
    layer.resolve_to(fb.Linear(2))
    read = fb.OneOf(len, {2: fb.Vector(2)})
    (data, between, loss) = yielded(read >> layer() >> LOSS)
    assert data == {"feed"}
    assert between <= {"cotangent", "stored"}
    assert loss <= {"cotangent", "stored"}
    assert between and loss
    ids = fb.OneOf(bool, {True: fb.Scalar("int32")}) >> fb.Embedding(3, 2) >> layer() >> LOSS
    assert not any(yielded(ids))
    assert not any(yielded(read >> layer()))  # no loss


def test_reads_are_found_by_path_and_block_without_integers_and_keys():
    model = fb.Record({"x": fb.Vector(2), "i": fb.Scalar("int32"), "y": fb.Scalar("float64")})
    model = model >> fb.AllOf(fb.GetItem(0) >> fb.Dropout(0.5), fb.GetItem(1), fb.GetItem(2))
    found = float_reads(fb.compile(model).lowered)
    assert {name: (type_, len(places)) for name, (type_, places) in found.items()} == {
        "model['x'] Vector(2, 'float32')": (TensorType((2,)), 1),
        "model['y'] Scalar('float64')": (TensorType((), "float64"), 1),
    }


def test_a_datum_of_two_cells_is_read_at_one_place():
    again = fb.ForwardDeclaration(2, 2, "again")
    again.resolve_to(fb.Function(ops.tanh))
    whole = fb.Vector(2) >> fb.AllOf(fb.Function(lambda x: x * 2) >> again(), fb.Identity())
    lowered = fb.compile(whole >> fb.Function(lambda a, b: ops.sum(a * b)) >> fb.Loss()).lowered
    ((_, places),) = float_reads(lowered).values()
    holding = [(d.number, i) for d in lowered.tracer.drafts for i, _ in enumerate(d.feeds)]
    assert places == [holding]
    assert len(holding) == 2


def test_in_a_recursion_the_gradients_of_children_come_before_their_parents():
    """In the order of calls, which end with the children; metrics are in the order of visits."""
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    keep = fb.AllOf(fb.Identity(), fb.Metric("read")) >> fb.GetItem(0)
    own = fb.GetItem(0) >> fb.Scalar() >> keep
    kids = fb.GetItem(1) >> fb.Map(tree()) >> fb.Sum()
    square = fb.Function(lambda x: x * x) >> fb.Loss()
    tree.resolve_to(
        fb.AllOf(own >> fb.AllOf(fb.Identity(), square) >> fb.GetItem(0), kids) >> fb.Function(ops.add)
    )
    program = fb.compile(tree())
    examples = [[1, [[2, [[3, []]]], [4, []]]], [5, []]]
    _, gradients = program.input_gradients(examples)
    (found,) = gradients.values()
    assert found.values.tolist() == [6, 4, 8, 2, 10]
    assert found.nodes.tolist() == [0, 1, 2, 3, 0]
    assert program.run(examples).metrics["read"].values.tolist() == [1, 2, 3, 4, 5]
