"""Linking: what is recursive, what shares an arena, where gradients flow, what is packed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.model.drafts import Draft, Feed
from foldbatch.model.link import link, numbered_sites
from foldbatch.model.model import Model
from foldbatch.model.wires import Flow
from foldbatch.scheduler.trace import Operand
from foldbatch.static.graph import Node, input_node, parameter_node, reachable
from foldbatch.static.op import ragged
from foldbatch.static.ops.random import KEY
from foldbatch.types import VOID, TensorType

V = fb.Vector(2)
ADD = fb.Function(lambda a, b: ops.tanh(a + b))
PAIR = TensorType((2,))


def linked(block: fb.Block) -> Model:
    return fb.compile(block, "numpy").model


def is_list(x: object) -> bool:
    return isinstance(x, list)


def a_tree(leaf: fb.Block, join: fb.Block, of: object = 2) -> fb.ForwardDeclaration:
    tree = fb.ForwardDeclaration(output_type=of, name="tree")
    tree.resolve_to(fb.OneOf(is_list, {False: leaf, True: fb.Record((tree(), tree())) >> join}))
    return tree


def test_only_the_cell_on_a_cycle_is_recursive_and_components_are_in_order():
    model = a_tree(fb.GetItem("x") >> V, ADD)() >> fb.Linear(3)
    found = {cell.name: cell for cell in linked(model).signatures}
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
    recursive = [cell for cell in linked(plus()).signatures if cell.recursive]
    assert [cell.name for cell in recursive] == ["times.case(2)", "plus.case(2)"]
    assert len({cell.component for cell in recursive}) == 1


def test_what_the_data_recurs_through_alone_is_not_recursive():
    """A list of words inside a list: the call goes round, but no tensor does."""
    visit = fb.ForwardDeclaration(output_type=(None,), name="visit")
    lossy = fb.GetItem("x") >> V >> fb.Function(ops.sum) >> fb.Loss()
    visit.resolve_to(
        fb.OneOf(is_list, {False: lossy >> fb.AllOf(fb.Void()), True: fb.Map(visit()) >> fb.AllOf(fb.Void())})
    )
    found = linked(visit())
    assert [cell.recursive for cell in found.signatures] == [False]
    program = fb.compile(visit(), "numpy")
    assert program.run([[{"x": [1, 2]}, [{"x": [3, 4]}, []]]], losses=True).loss == 10.0


def test_values_that_may_reach_one_operand_share_an_arena_and_others_do_not():
    leaf = fb.GetItem("x") >> V
    model = fb.AllOf(a_tree(leaf, ADD)() >> fb.Linear(2), fb.GetItem(0) >> leaf)
    found = linked(model)
    leaf_cell, node, top = found.signatures
    (state,) = node.outputs
    assert leaf_cell.outputs == (state,)
    assert [operand.arena for operand in node.operands] == [state, state]
    assert state not in top.outputs
    assert found.arenas[state] == fb.types.TensorType((2,))


def test_children_that_a_cell_stacks_are_read_side_by_side():
    state = fb.AllOf(fb.GetItem("h") >> V, fb.GetItem("c") >> V)
    tree = a_tree(state, fb.AllOf(fb.Void(), fb.Identity()) >> fb.TreeLSTM(2), of=(2, 2))
    node = linked(tree() >> fb.GetItem(0)).signatures[1]
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
    (cell,) = linked(model).cells
    assert bool(cell.training.backward) == flows


def test_gradients_stop_where_no_parameter_lies_behind_and_where_no_loss_lies_before():
    whole = fb.OneOf(len, {2: V, 3: fb.GetItem(slice(0, 2)) >> V >> fb.Linear(2)})  # a choice cuts the cells
    _, _, last = linked(whole >> fb.AllOf(fb.Function(ops.sum) >> fb.Loss(), fb.Identity())).signatures
    assert last.operands[0].differentiable
    frozen = fb.OneOf(len, {2: V})
    assert (
        not linked(frozen >> fb.Linear(1) >> fb.Function(ops.sum) >> fb.Loss())
        .signatures[1]
        .operands[0]
        .differentiable
    )
    ids = fb.OneOf(len, {2: fb.Vector(2, "int32")}) >> fb.Embedding(3, 2) >> fb.Function(ops.sum) >> fb.Loss()
    assert not linked(ids).signatures[1].operands[0].differentiable
    lossless = whole >> fb.Linear(1)
    assert not linked(lossless).signatures[2].operands[0].differentiable


# -- drafts put together by hand


def one_by_one(drafts: list[Draft], results: Iterable[Flow] = (), **more: object) -> Model:
    parameters = fb.compile(V >> fb.Linear(1), "numpy").model.parameters  # of another model: left out
    own = [node.attrs["parameter"] for draft in drafts for node in weights(draft)]
    return link(drafts, VOID, results, [*own, *parameters], **more)  # type: ignore[arg-type]


def weights(draft: Draft) -> list[Node]:
    results = [*draft.outputs, *(node for _, node in draft.losses)]
    return [node for node in reachable(results) if node.op.name == "parameter"]


def chain(*, back: bool) -> list[Draft]:
    """A leaf, a node that reads pairs of states, and a loss; states go `back` to the node, or do not."""
    weight = parameter_node(fb.Parameter([4, 2], name="w"))
    x, left, right, top = (input_node(PAIR) for _ in range(4))
    leaf, node, loss = (Draft(name, i) for i, name in enumerate(("leaf", "node", "loss")))
    state, root = Flow(), Flow()
    leaf.feeds.append((x, Feed(PAIR, "leaf x", "")))
    _, out = leaf.output(ops.exp(x))
    out.feed(state)
    node.operands += [(left, state), (right, state)]
    _, out = node.output(ops.tanh(ops.concat([left, right]) @ weight))
    if back:
        out.feed(state)
    out.feed(root)
    loss.operands.append((top, root))
    loss.losses.append(("loss", ops.sum(top)))
    return [leaf, node, loss]


def test_operands_that_a_cell_joins_are_one_of_several_columns():
    node = one_by_one(chain(back=True)).signatures[1]
    assert [(o.columns, o.sequence) for o in node.operands] == [((0, 1), None)]
    assert node.arguments == 2


def test_a_wire_that_holds_a_result_is_an_arena_of_results():
    drafts = chain(back=True)
    (wire,) = drafts[1].outputs.values()
    unread = Flow()
    model = one_by_one(drafts, [wire, unread])
    assert model.results == {0, 1}
    assert model.arenas == (PAIR, TensorType(()))  # nothing is ever written to the second


def test_members_of_a_sequence_are_operands_of_their_own():
    axis = ragged()
    a, b = input_node(PAIR, axis), input_node(TensorType(()), axis)
    leaf, each = Draft("leaf", 0), Draft("each", 1)
    wires = [leaf.output(ops.batched(node))[1] for node in (np.zeros(2, "float32"), np.float32(1))]
    each.sequences.append((axis, [(a, wires[0]), (b, wires[1])]))
    each.losses.append(("loss", ops.segment_sum(ops.sum(a) * b)))
    model = one_by_one([leaf, each])
    assert model.signatures[1].sequences == (2,)
    assert [(o.sequence, o.member, o.columns) for o in model.signatures[1].operands] == [
        (0, 0, ()),
        (0, 1, ()),
    ]
    assert model.signatures[1].operands[0] != Operand(0)


def test_what_drafts_say_of_feeds_metrics_and_keys_is_kept():
    x = input_node(PAIR)
    draft = Draft("cell", 0, feeds=[(KEY, Feed(KEY.type, "key", "")), (x, Feed(PAIR, "x", ""))], keys=[0])
    draft.metrics += [("a", ops.sum(x)), ("b", ops.exp(x))]
    draft.labels.append(1)
    model = one_by_one([draft])
    assert model.feeds == (tuple(feed for _, feed in draft.feeds),)
    assert (model.metrics, model.labels, model.keys) == ((("a", "b"),), ((1,),), ((0,),))
    assert not model.signatures[0].shareable  # each call draws its own


def test_parameters_that_no_cell_reads_are_left_out():
    drafts = chain(back=True)
    assert [p.name for p in one_by_one(drafts).parameters] == ["w"]


def test_a_bound_on_what_is_kept_is_the_models():
    assert one_by_one(chain(back=True), kept_bytes=0).kept_bytes == 0
    assert one_by_one(chain(back=True)).kept_bytes is None


def test_draws_are_numbered_from_none_whatever_was_built_before():
    """Two drafts built alike draw alike, but two sites of one draw apart."""

    def sites() -> list[int]:
        x = ops.random((3,), "float32") + ops.random((3,), "float32")
        return sorted(n.attrs["site"] for n in reachable(numbered_sites([x])) if n.op.name == "random")

    assert sites() == sites() == [0, 1]


def test_calls_known_by_integers_may_be_shared():
    """Leaves that look something up; not what has a loss, or reads floats, or does nothing."""
    word = input_node(TensorType((), "int32"))
    table = parameter_node(fb.Parameter([5, 2], name="table"))

    def flags(node: Node, feed: Node, *, loss: bool = False) -> tuple[bool, bool]:
        draft = Draft("cell", 0, feeds=[(feed, Feed(feed.type, "x", ""))])
        draft.output(node)
        if loss:
            draft.losses.append(("loss", ops.sum(node)))
        (cell,) = one_by_one([draft]).signatures
        return cell.shareable, cell.repeatable

    assert flags(ops.gather(table, word), word) == (True, True)
    assert flags(ops.gather(table, word), word, loss=True) == (False, False)
    x = input_node(PAIR)
    assert flags(ops.exp(x), x) == (False, False)
    assert flags(word, word) == (False, True)
    assert [(s.shareable, s.repeatable) for s in one_by_one(chain(back=True)).signatures][1] == (False, True)
