"""Which cells are recursive, which values share arenas, and where gradients flow."""

import foldbatch as fb
from foldbatch import ops

H = 4


def tree_lstm(*, trainable: bool = True) -> fb.Block:
    """A Tree-LSTM with a loss at every node."""
    tree = fb.ForwardDeclaration(output_type=(H, H), name="tree")
    cell, table = fb.TreeLSTM(H), fb.Embedding(5, H, trainable=trainable)
    leaf = fb.AllOf(fb.Scalar("int32") >> table, fb.Record(())) >> cell
    node = fb.AllOf(fb.Void(), fb.Record((tree(), tree()))) >> cell
    state = fb.OneOf(lambda t: isinstance(t, tuple), {False: leaf, True: node})
    loss = fb.GetItem(0) >> fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss()
    tree.resolve_to(state >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0))
    return tree()


def test_only_the_cell_that_feeds_itself_is_recursive() -> None:
    """Leaves come before it, losses after it, in components of their own."""
    lowered = fb.compile(tree_lstm()).lowered
    by_name = {cell.name: cell for cell in lowered.signatures}
    leaf, node, loss = by_name["tree.case(False)"], by_name["tree.case(True)"], by_name["tree"]
    assert (leaf.recursive, node.recursive, loss.recursive) == (False, True, False)
    assert leaf.component < node.component < loss.component


def test_h_and_c_have_an_arena_each_and_children_are_read_side_by_side() -> None:
    """All h of leaves and nodes can reach the same operand; no c can reach the classifier."""
    lowered = fb.compile(tree_lstm()).lowered
    by_name = {cell.name: cell for cell in lowered.signatures}
    node = by_name["tree.case(True)"]
    assert len(lowered.arenas) == 2
    assert node.outputs == by_name["tree.case(False)"].outputs
    assert [len(operand.columns) for operand in node.operands] == [2, 2]
    assert {operand.arena for operand in node.operands} == {0, 1}


def test_calls_of_ids_alone_are_shared() -> None:
    """Leaves are; nodes and losses are not."""
    shareable = {cell.name for cell in fb.compile(tree_lstm()).lowered.signatures if cell.shareable}
    assert shareable == {"tree.case(False)"}


def test_gradients_flow_only_between_weights_and_losses() -> None:
    """Nothing is derived where no weight acts, nor where no loss is reached."""
    no_loss = fb.compile(fb.Vector(2) >> fb.Linear(2))
    assert all(cell.backward == {} for cell in no_loss.lowered.cells)
    no_weight = fb.compile(fb.Map(fb.Vector(2)) >> fb.Function(lambda x: ops.sum(ops.segment_sum(x))) >> fb.Loss())
    assert all(cell.backward == {} for cell in no_weight.lowered.cells)
    frozen = fb.compile(tree_lstm(trainable=False)).lowered
    assert not any(cell.sparse for cell in frozen.cells)


def test_parameters_are_in_the_order_in_which_cells_read_them() -> None:
    """So that names do not depend on anything else."""
    assert list(fb.compile(tree_lstm()).params) == list(fb.compile(tree_lstm()).params)
