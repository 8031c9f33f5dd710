"""What is computed again: enough to stay within the budget, nothing dear, and never another result."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.static.cell import Cell, stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import input_node
from foldbatch.static.op import UNBATCHED
from foldbatch.static.residuals import DEAR, choose
from foldbatch.static.sides import optimized
from foldbatch.types import TensorType

SIZE = 4


def deep(steps: int = 5) -> tuple[CellGraph, Ends]:
    """A cell of several elementwise ops, each of which keeps something for its derivative."""
    x = input_node(TensorType((SIZE,)))
    y = x
    for _ in range(steps):
        y = ops.tanh(y) * ops.sigmoid(y)
    return CellGraph("deep", (x,), (), (y,)), Ends(
        active_operands=frozenset({0}), active_outputs=frozenset({0})
    )


def kept_bytes(cell: Cell) -> int:
    return sum(kept.type.nbytes for kept in cell.training.kept if kept.axis is not UNBATCHED)


def staged(budget: int | None) -> Cell:
    return stage_cell(*deep(), budget)


def hyperbolic_tangents(cell: Cell) -> int:
    """How many the backward stages compute again."""
    stages = cell.training.backward.values()
    return sum(node.op.name == "tanh" for stage in stages for node in stage.computed | stage.kept.keys())


def test_without_a_budget_everything_is_kept():
    graph, ends = deep()
    assert choose(optimized(graph, ends, training=True), ends, None) == frozenset()
    assert kept_bytes(staged(None)) == max(kept_bytes(staged(b)) for b in (None, 10_000))
    assert hyperbolic_tangents(staged(None)) == 0


@pytest.mark.parametrize("rows", range(9))
def test_a_budget_is_kept_and_no_more_is_computed_again_than_needed(rows):
    budget = rows * SIZE * 4
    cell = staged(budget)
    assert kept_bytes(cell) <= budget
    assert hyperbolic_tangents(cell) <= hyperbolic_tangents(staged(0))
    if rows:
        assert kept_bytes(cell) > budget - 2 * SIZE * 4  # what fits is kept


def test_products_are_never_computed_again():
    x, weight = input_node(TensorType((SIZE,))), fb.Parameter([SIZE, SIZE])
    graph = CellGraph("c", (x,), (), (ops.square(ops.matmul(ops.tanh(x), weight)),))
    ends = Ends(active_operands=frozenset({0}), active_outputs=frozenset({0}))
    chosen = choose(optimized(graph, ends, training=True), ends, 0)
    assert [node.op.name for node in chosen] == ["tanh"]
    assert not any(node.op.name in DEAR for node in chosen)


@pytest.mark.parametrize("budget", [None, 0, 4])
def test_what_both_directions_need_of_parameters_alone_is_computed_before_either_reads_it(budget):
    """The sum of `p`, which forward needs for its mean, and backward too where it computes again."""
    p = fb.Parameter([3], init=[1.0, 2.0, 3.0], name="p")
    mixed = fb.Function(lambda x: ops.sum(p * ops.mean(x) + ops.mean(p)))
    model = fb.Vector(2) >> fb.Linear(2, init="ones") >> mixed >> fb.Loss()
    program = fb.compile(model, "numpy", options={"kept_bytes": budget}, debug=True)
    for scale in (1.0, 10.0):
        program.params["p"] = [scale, 2 * scale, 3 * scale]
        loss, gradients = program.value_and_grad([[1.0, 2.0], [3.0, 4.0]])
        assert loss == pytest.approx(72 * scale)
        assert gradients["p"] == pytest.approx([12.0, 12.0, 12.0])


@pytest.mark.parametrize("cell", [fb.LSTMCell(3), fb.GRUCell(3)], ids=repr)
def test_a_program_with_less_to_keep_has_the_same_gradients(cell):
    loss = fb.GetItem(0) >> fb.Sum() >> fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss()
    model = fb.Map(fb.Vector(2)) >> fb.RNN(cell) >> loss
    examples = [[[1, 2], [3, 4], [0.5, -1]], [[1, 0]], []]
    whole, frugal = (
        fb.compile(model, backend="numpy"),
        fb.compile(model, backend="numpy", options={"kept_bytes": 0}),
    )
    (a, da), (b, db) = whole.value_and_grad(examples), frugal.value_and_grad(examples)
    assert a == pytest.approx(b, rel=1e-6)
    for name in da:
        np.testing.assert_allclose(da[name], db[name], rtol=1e-5, atol=1e-7)
    sizes = [sum(map(kept_bytes, program.model.cells)) for program in (whole, frugal)]
    assert sizes[1] < sizes[0]


def test_what_is_drawn_at_random_is_drawn_again_the_same():
    model = (
        fb.Vector(50)
        >> fb.Dropout(0.5)
        >> fb.Function(lambda x: ops.sum(ops.square(ops.tanh(x))))
        >> fb.Loss()
    )
    net = (
        fb.Vector(50)
        >> fb.Linear(50)
        >> fb.Dropout(0.5)
        >> fb.Function(lambda x: ops.sum(x * x))
        >> fb.Loss()
    )
    assert fb.compile(model, options={"kept_bytes": 0}).value_and_grad([np.ones(50)])[0] > 0
    results = [
        fb.compile(net, options={"kept_bytes": budget}).value_and_grad([np.ones(50)], step=3)
        for budget in (None, 0)
    ]
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-6)
    for name, gradient in results[0][1].items():
        np.testing.assert_allclose(gradient, results[1][1][name], rtol=1e-5, atol=1e-6)
