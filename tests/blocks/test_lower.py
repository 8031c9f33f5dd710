"""Lowering: what is recursive, what shares an arena, where gradients flow, what is named."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.blocks.lower import Lowered
from foldbatch.static.graph import INPUT, reachable

V = fb.Vector(2)
ADD = fb.Function(lambda a, b: ops.tanh(a + b))


def lowered(block: fb.Block) -> Lowered:
    return fb.compile(block).lowered


def is_list(x: object) -> bool:
    return isinstance(x, list)


def a_tree(leaf: fb.Block, join: fb.Block, of: object = 2) -> fb.ForwardDeclaration:
    tree = fb.ForwardDeclaration(output_type=of, name="tree")
    tree.resolve_to(fb.OneOf(is_list, {False: leaf, True: fb.Record((tree(), tree())) >> join}))
    return tree


def test_only_the_cell_on_a_cycle_is_recursive_and_components_are_in_order():
    model = a_tree(fb.GetItem("x") >> V, ADD)() >> fb.Linear(3)
    found = {cell.name: cell for cell in lowered(model).signatures}
    assert {name: cell.recursive for name, cell in found.items()} == {
        "tree.case(False)": False,
        "tree.case(True)": True,
        "model": False,
    }
    order = sorted(found, key=lambda name: found[name].component)
    assert order == ["tree.case(False)", "tree.case(True)", "model"]


def test_declarations_that_refer_to_each_other_are_one_component():
    plus = fb.ForwardDeclaration(output_type=2, name="plus")
    times = fb.ForwardDeclaration(output_type=2, name="times")
    plus.resolve_to(fb.OneOf(len, {1: fb.GetItem(0) >> V, 2: fb.Record((times(), times())) >> ADD}))
    times.resolve_to(
        fb.OneOf(
            len, {1: fb.GetItem(0) >> V, 2: fb.Record((plus(), plus())) >> fb.Function(lambda a, b: a * b)}
        )
    )
    recursive = [cell for cell in lowered(plus()).signatures if cell.recursive]
    assert [cell.name for cell in recursive] == ["times.case(2)", "plus.case(2)"]
    assert len({cell.component for cell in recursive}) == 1


def test_what_the_data_recurs_through_alone_is_not_recursive():
    """A list of words inside a list: the call goes round, but no tensor does."""
    visit = fb.ForwardDeclaration(output_type=(None,), name="visit")
    lossy = fb.GetItem("x") >> V >> fb.Function(ops.sum) >> fb.Loss()
    visit.resolve_to(
        fb.OneOf(is_list, {False: lossy >> fb.AllOf(fb.Void()), True: fb.Map(visit()) >> fb.AllOf(fb.Void())})
    )
    found = lowered(visit())
    assert [cell.recursive for cell in found.signatures] == [False]
    program = fb.compile(visit())
    assert program.run([[{"x": [1, 2]}, [{"x": [3, 4]}, []]]]).loss == 10.0


def test_values_that_may_reach_one_operand_share_an_arena_and_others_do_not():
    leaf = fb.GetItem("x") >> V
    model = fb.AllOf(a_tree(leaf, ADD)() >> fb.Linear(2), fb.GetItem(0) >> leaf)
    found = lowered(model)
    leaf_cell, node, top = found.signatures
    (state,) = node.outputs
    assert leaf_cell.outputs == (state,)
    assert [operand.arena for operand in node.operands] == [state, state]
    assert state not in top.outputs
    assert found.arenas[state] == fb.types.TensorType((2,))


def test_children_that_a_cell_stacks_are_read_side_by_side():
    state = fb.AllOf(fb.GetItem("h") >> V, fb.GetItem("c") >> V)
    tree = a_tree(state, fb.AllOf(fb.Void(), fb.Identity()) >> fb.TreeLSTM(2), of=(2, 2))
    node = lowered(tree() >> fb.GetItem(0)).signatures[1]
    assert sorted(operand.columns for operand in node.operands) == [(0, 2), (1, 3)]  # both h, both c


@pytest.mark.parametrize(
    ("model", "flows"),
    [
        (V >> fb.Linear(1) >> fb.Function(ops.sum) >> fb.Loss(), True),
        (V >> fb.Function(ops.sum) >> fb.Loss(), False),  # nothing to train
        (V >> fb.Linear(1), False),  # no loss
    ],
)
def test_gradients_flow_only_from_losses_to_parameters(model, flows):
    (cell,) = lowered(model).cells
    assert bool(cell.backward) == flows


def test_gradients_stop_where_no_parameter_lies_behind_and_where_no_loss_lies_before():
    whole = fb.OneOf(len, {2: V, 3: fb.GetItem(slice(0, 2)) >> V >> fb.Linear(2)})  # a choice cuts the cells
    _, _, last = lowered(whole >> fb.AllOf(fb.Function(ops.sum) >> fb.Loss(), fb.Identity())).signatures
    assert last.operands[0].differentiable
    frozen = fb.OneOf(len, {2: V})
    assert (
        not lowered(frozen >> fb.Linear(1) >> fb.Function(ops.sum) >> fb.Loss())
        .signatures[1]
        .operands[0]
        .differentiable
    )
    ids = fb.OneOf(len, {2: fb.Vector(2, "int32")}) >> fb.Embedding(3, 2) >> fb.Function(ops.sum) >> fb.Loss()
    assert not lowered(ids).signatures[1].operands[0].differentiable
    lossless = whole >> fb.Linear(1)
    assert not lowered(lossless).signatures[2].operands[0].differentiable


def test_what_another_cell_computes_is_a_mere_input_of_the_one_that_reads_it():
    """Else its derivatives would look behind the input, and count the other cell's parameters twice."""
    square = fb.ForwardDeclaration("float32", "float32", "square")
    square.resolve_to(fb.Function(lambda x: x * x))
    shared = V >> fb.Linear(1) >> fb.Function(lambda x: ops.tanh(x[0]))
    for cell in lowered(shared >> fb.AllOf(fb.Loss("itself"), square() >> fb.Loss("its square"))).cells:
        assert all(node.op is INPUT for node in cell.graph.inputs)
        inner = reachable(cell.graph.results, cell.graph.inputs)
        assert all(node in cell.graph.inputs for node in inner if node.op is INPUT)


def test_parameters_are_listed_once_in_the_order_of_the_blocks():
    a, b = fb.Linear(2, name="a"), fb.Linear(2, name="b")
    layers = V >> b >> a >> fb.AllOf(b, fb.Linear(2)) >> fb.GetItem(1)
    program = fb.compile(layers)
    assert list(program.params) == [
        "b.weight",
        "b.bias",
        "a.weight",
        "a.bias",
        "linear.weight",
        "linear.bias",
    ]


def test_a_layer_that_nothing_comes_of_is_no_part_of_the_program():
    program = fb.compile(V >> fb.AllOf(fb.Linear(3) >> fb.Void(), fb.Linear(2, name="used")) >> fb.GetItem(1))
    assert list(program.params) == ["used.weight", "used.bias"]


def test_ids_are_bounded_by_the_smallest_table_that_they_index():
    tables = fb.AllOf(fb.Embedding(5, 2), fb.Embedding(3, 2)) >> fb.Concat()
    program = fb.compile(fb.Scalar("int32") >> tables)
    assert program.lowered.tracer.bounds == [[3]]
    weight = np.zeros((4, 2), "float32")
    shifted = fb.Scalar("int32") >> fb.Function(lambda i: ops.gather(weight, i + 1))
    assert fb.compile(shifted).lowered.tracer.bounds == [[None]]  # checked when it is computed
    with pytest.raises(fb.errors.ExampleError, match="at example 1: expected ids from 0 to 3, found 4"):
        fb.compile(shifted).run([2, 3])


def test_a_block_compiles_to_the_same_program_every_time():
    tree = a_tree(fb.GetItem("x") >> V >> fb.Linear(2), ADD)
    model = fb.AllOf(tree() >> fb.Linear(3), fb.Identity() >> tree())
    first, second = fb.compile(model), fb.compile(model)
    assert first.kernels() == second.kernels()
    assert repr(first.model.signatures) == repr(second.model.signatures)
