"""Cells staged once more yield gradients of other things, from other sources."""

from __future__ import annotations

import foldbatch as fb
from foldbatch import ops
from foldbatch.model.model import Model
from foldbatch.model.sources import float_reads, with_gradients
from foldbatch.static.graph import Graph
from foldbatch.types import TensorType

LOSS = fb.Function(ops.sum) >> fb.Loss()


def model_of(block: fb.Block) -> Model:
    return fb.compile(block, "numpy").model


def kinds(model: Model) -> list[set[str]]:
    """What the backward stages of each cell yield; cotangents of outputs that they are given are ``seed``."""
    found = []
    for cell in model.cells:
        stages = cell.training.backward.values()
        found.append({what[0] for stage in stages for what, _ in stage.results})
        found[-1] |= {"rows" for _ in cell.sums}
        found[-1] |= {"seed" for stage in stages for b in stage.given.values() if b.kind == "cotangent"}
    return found


def graph_of(model: Model) -> Graph:
    """What the first cell computes while training."""
    graph = model.cells[0].graph
    return Graph(graph.inputs, graph.results)


def yielded(block: fb.Block) -> list[set[str]]:
    found = kinds(with_gradients(model_of(block), parameters=False, inputs=True))
    return [kind - {"seed"} for kind in found]


def test_parameters_have_no_gradient_there():
    assert yielded(fb.Vector(2) >> fb.Linear(3) >> LOSS) == [{"feed"}]


def test_gradients_of_parameters_may_be_wanted_too():
    model = model_of(fb.Vector(2) >> fb.Linear(3) >> LOSS)
    assert kinds(model) == kinds(with_gradients(model)) == [{"gradient"}]
    assert kinds(with_gradients(model, inputs=True)) == [{"gradient", "feed"}]
    looked_up = model_of(fb.Scalar("int32") >> fb.Embedding(3, 2) >> LOSS)
    assert kinds(looked_up) == kinds(with_gradients(looked_up)) == [{"rows"}]
    assert kinds(with_gradients(looked_up, parameters=False, inputs=True)) == [set()]


def test_gradients_come_from_losses_or_from_results_or_from_both():
    block = fb.Vector(2) >> fb.Linear(3, name="layer") >> fb.AllOf(LOSS, fb.Identity())
    model = model_of(block)
    assert kinds(with_gradients(model, results=True)) == [{"gradient", "seed"}]
    assert kinds(with_gradients(model, losses=False, results=True)) == [{"gradient", "seed"}]
    assert kinds(with_gradients(model, losses=False)) == [set()]
    weight = next(p for p in model.parameters if p.name == "weight")
    for losses in (False, True):
        (cell,) = with_gradients(model, losses=losses, results=True).cells
        assert cell.ends.losses == losses
        assert ("gradient", weight) in [
            what for stage in cell.training.backward.values() for what, _ in stage.results
        ]


def test_results_that_are_not_float_are_no_source():
    block = fb.Vector(2) >> fb.Linear(3) >> fb.Function(lambda x: ops.argmax(x, 0))
    assert kinds(with_gradients(model_of(block), losses=False, results=True)) == [set()]


def test_a_model_without_losses_has_gradients_from_results_through_all_its_cells():
    tree = fb.ForwardDeclaration(output_type=2, name="tree")
    pair = fb.Record((tree(), tree())) >> fb.Concat() >> fb.Linear(2, "tanh")
    tree.resolve_to(fb.OneOf(lambda x: isinstance(x, tuple), {False: fb.Vector(2), True: pair}))
    model = model_of(tree())
    assert kinds(model) == [set(), set()]
    leaf, node = kinds(with_gradients(model, results=True))
    assert node == {"gradient", "cotangent", "seed"}
    assert leaf == set()
    leaf, node = kinds(with_gradients(model, results=True, inputs=True))
    assert leaf == {"feed", "seed"}


def test_traces_fit_and_what_inference_computes_stays():
    program = fb.compile(fb.Vector(2) >> fb.Linear(3, name="layer") >> fb.AllOf(LOSS, fb.Identity()), "numpy")
    other = with_gradients(program.model, losses=False, results=True, inputs=True)
    for name in ("arenas", "results", "metrics", "labels", "keys", "feeds", "parameters", "result"):
        assert getattr(other, name) == getattr(program.model, name)
    for cell, same in zip(other.cells, program.model.cells, strict=True):
        assert cell.built is same.built
        assert cell.ends.recursive_operands == same.ends.recursive_operands
    assert other.form == program.model.form


def test_gradients_flow_back_through_cells_to_the_data_and_to_nothing_else():
    layer = fb.ForwardDeclaration(2, 2, "layer")
    layer.resolve_to(fb.Linear(2))
    read = fb.OneOf(len, {2: fb.Vector(2)})
    (data, between, loss) = yielded(read >> layer() >> LOSS)
    assert data == {"feed"}
    assert between == loss == {"cotangent"}
    ids = fb.OneOf(bool, {True: fb.Scalar("int32")}) >> fb.Embedding(3, 2) >> layer() >> LOSS
    assert not any(yielded(ids))
    assert not any(yielded(read >> layer()))  # no loss


def test_reads_are_found_by_path_and_block_without_integers_and_keys():
    model = fb.Record({"x": fb.Vector(2), "i": fb.Scalar("int32"), "y": fb.Scalar("float64")})
    model = model >> fb.AllOf(fb.GetItem(0) >> fb.Dropout(0.5), fb.GetItem(1), fb.GetItem(2))
    found = float_reads(model_of(model))
    assert {name: (type_, len(places)) for name, (type_, places) in found.items()} == {
        "model['x'] Vector(2, 'float32')": (TensorType((2,)), 1),
        "model['y'] Scalar('float64')": (TensorType((), "float64"), 1),
    }


def test_a_datum_of_two_cells_is_read_at_one_place():
    again = fb.ForwardDeclaration(2, 2, "again")
    again.resolve_to(fb.Function(ops.tanh))
    whole = fb.Vector(2) >> fb.AllOf(fb.Function(lambda x: x * 2) >> again(), fb.Identity())
    model = model_of(whole >> fb.Function(lambda a, b: ops.sum(a * b)) >> fb.Loss())
    ((_, places),) = float_reads(model).values()
    holding = [(k, i) for k, feeds in enumerate(model.feeds) for i, _ in enumerate(feeds)]
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
    program = fb.compile(tree(), "numpy")
    examples = [[1, [[2, [[3, []]]], [4, []]]], [5, []]]
    _, _, gradients = program.vjp(examples, inputs=True)
    (found,) = gradients.values()
    assert found.values.tolist() == [6, 4, 8, 2, 10]
    assert found.nodes.tolist() == [0, 1, 2, 3, 0]
    assert program.run(examples, metrics=True).metrics["read"].values.tolist() == [1, 2, 3, 4, 5]


def test_what_inference_computes_has_gradients_too():
    model = model_of(fb.Vector(2) >> fb.Dropout(0.5) >> fb.Linear(3) >> LOSS)
    quiet = with_gradients(model, training=False)
    assert kinds(quiet) == kinds(with_gradients(model)) == [{"gradient"}]
    drawn = [{node.op.name for node in graph_of(m).nodes} & {"less_equal"} for m in (model, quiet)]
    assert drawn == [{"less_equal"}, set()]
