"""What is computed again: enough to stay within the budget, nothing dear, and never another result."""

import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.static.cell import DEAR, Cell, choose, optimized, stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import input_node
from foldbatch.static.op import UNBATCHED
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
    stages = cell.training.backward.values()
    return sum(node.op.name == "tanh" for stage in stages for node in stage.computed | stage.kept.keys())


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
