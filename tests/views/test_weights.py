"""Where gradients of parameters come from: routines, sums of rows, or nowhere."""

from __future__ import annotations

import foldbatch as fb
from foldbatch.engines.numpy import TARGET
from foldbatch.static import ops
from foldbatch.static.cell import Cell
from foldbatch.views.naming import name_nodes
from foldbatch.views.parts import parts_of
from foldbatch.views.weights import Weight, weights
from tests.views.explained import explained, textbook, tree_node


def weights_of(cell: Cell) -> dict[str, Weight]:
    """Return the parameters of a cell by name."""
    read = weights(cell, parts_of(cell.training, TARGET), name_nodes(cell, [], {}))
    return {weight.name: weight for weight in read}


def words(embed: fb.Block) -> Cell:
    """Return the cell of a layer, with a loss, on looked up words."""
    model = fb.Scalar("int32") >> embed >> fb.Linear(4, name="out") >> fb.Function(lambda h: ops.sum(h * h))
    (cell,) = fb.compile(model >> fb.Loss(), backend="numpy").model.cells
    return cell


def test_a_gradient_comes_from_routines_or_is_a_sum_of_rows() -> None:
    cell = words(fb.Embedding(9, 4, name="words"))
    found = weights_of(cell)
    layer, table = found["out.weight"], found["words.weight"]
    assert (layer.sparse, layer.gradient, layer.rows) == (False, ("backward_before",), ())
    assert (table.sparse, table.gradient) == (True, ())
    ((values, ids),) = table.rows
    assert ids == "f0"
    assert values in {placed.name for placed in explained(cell).stages if placed.direction == "backward"}
    assert f"gradient sparse, rows of {values} summed by f0\n" in f"{explained(cell)}\n"


def test_a_table_that_is_a_weight_too_has_both() -> None:
    table = fb.Parameter([9, 4], name="table")
    cell = words(fb.Function(lambda i: ops.gather(table, i) + ops.sum(ops.square(table))))
    found = weights_of(cell)["table"]
    assert (found.sparse, found.gradient, len(found.rows)) == (False, ("backward_before",), 1)


def test_what_is_frozen_or_has_no_loss_has_none() -> None:
    scale = weights_of(tree_node())["scale"]
    assert (scale.trainable, scale.gradient, scale.rows) == (False, (), ())
    assert scale.readers == ("forward_after", "backward_step")
    assert all(weight.gradient == () for weight in weights_of(textbook()).values())
