"""Linking: what is recursive, what shares an arena, where gradients flow, what is packed."""

from collections.abc import Iterable

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.model.drafts import Draft, Feed, Flow
from foldbatch.model.link import link
from foldbatch.model.model import Model, digest
from foldbatch.static.graph import Node, input_node, parameter_node, reachable
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
        "tree(is_list=False)": False,
        "tree(is_list=True)": True,
        "model": False,
    }
    order = sorted(found, key=lambda name: found[name].component)
    assert order == ["tree(is_list=False)", "tree(is_list=True)", "model"]


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


def test_digests_tell_models_apart_and_equal_ones_not():
    def digest_of(scale=2.0, size=3, init="zeros", name="w", loss="loss"):
        w = fb.Parameter([size], init, name)
        block = fb.Vector(size) >> fb.Function(lambda x: x * w * scale)
        return digest(fb.compile(block >> fb.Function(ops.sum) >> fb.Loss(loss), "numpy").model)

    others = [{"scale": 3.0}, {"size": 2}, {"init": "ones"}, {"init": 0.5}, {"name": "v"}, {"loss": "l"}]
    found = [digest_of(), *(digest_of(**other) for other in others)]
    assert digest_of() == found[0]
    assert len({*found}) == len(found)
    large, other = np.zeros(100), np.zeros(100)
    other[50] = 1  # not among what is printed
    assert len({digest(fb.compile(fb.FromTensor(x), "numpy").model) for x in (large, other)}) == 2
