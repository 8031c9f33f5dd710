"""Cells staged both ways: right in every stage, and as little as possible in each."""

from collections.abc import Iterable

import pytest

import foldbatch as fb
from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.cell import stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import input_node
from foldbatch.static.routines import Stage, routine_of
from foldbatch.types import TensorType
from tests.static.run_kernel import TARGET


def _ops(stages: Iterable[Stage]) -> list[str]:
    return [s.op for stage in stages for s in routine_of(stage, TARGET).statements]


def test_feed_bounds_see_through_casts_and_take_the_smallest() -> None:
    """Data used as indices is checked while it is traced, against every table it goes into."""
    ids, free = input_node(TensorType((2,), "int32")), input_node(TensorType((), "int32"))
    wide, narrow = Parameter([9, 2], 0.0), Parameter([5, 2], 0.0)
    cast = ops.cast(ops.reshape(ids, (2, 1)), "int64")
    outputs = (ops.gather(wide, ids), ops.gather(narrow, cast), ops.gather(wide, free + 1))
    graph = CellGraph("cell", (), (ids, free), outputs)
    assert graph.bounds == {ids: 5}
    stages = stage_cell(graph, Ends()).training.forward
    assert _ops(stages.values()).count("check_range") == 1


@pytest.mark.parametrize(("trained", "inferred", "checks"), [(5, 5, 0), (9, 5, 1), (5, 9, 0), (None, 5, 1)])
def test_an_index_that_only_inference_uses_is_checked_in_its_kernel(
    trained: int | None, inferred: int, checks: int
) -> None:
    """Tracing checks feeds against the tables of training; a smaller one in inference needs its own check."""
    x, word = input_node(TensorType((3,))), input_node(TensorType((), "int32"))
    table = lambda n: Parameter([n, 3], "normal", f"table{n}")  # noqa: E731
    first = ops.gather(table(trained), word) if trained else x
    y = x + ops.when_training(first, ops.gather(table(inferred), word))
    cell = stage_cell(CellGraph("cell", (x,), (word,), (y,)), Ends())
    assert _ops(cell.inference.forward.values()).count("check_range") == checks
    assert "check_range" not in _ops(cell.training.forward.values())


def test_what_both_directions_need_of_parameters_alone_is_computed_before_either_reads_it() -> None:
    """The sum of `p`, which forward needs for its mean."""
    p = fb.Parameter([3], init=[1.0, 2.0, 3.0], name="p")
    mixed = fb.Function(lambda x: ops.sum(p * ops.mean(x) + ops.mean(p)))
    model = fb.Vector(2) >> fb.Linear(2, init="ones") >> mixed >> fb.Loss()
    program = fb.compile(model, "numpy", debug=True)
    for scale in (1.0, 10.0):
        program.params["p"] = [scale, 2 * scale, 3 * scale]
        loss, gradients = program.value_and_grad([[1.0, 2.0], [3.0, 4.0]])
        assert loss == pytest.approx(72 * scale)
        assert gradients["p"] == pytest.approx([12.0, 12.0, 12.0])
