"""StageParts: every stage of a cell once, in the order in which they run, with what the target makes of it."""

from __future__ import annotations

from foldbatch.engines.numpy import TARGET
from foldbatch.static.graph import SOURCES
from foldbatch.static.routines import Target, routine_of
from foldbatch.views.parts import parts_of
from tests.views.explained import textbook, tree_node


def test_training_has_both_directions_and_inference_one() -> None:
    cell = tree_node()
    training = [(part.direction, part.when, part.name) for part in parts_of(cell.training, TARGET)]
    assert training == [
        ("forward", "before", "forward_before"),
        ("forward", "step", "forward_step"),
        ("forward", "after", "forward_after"),
        ("backward", "step", "backward_step"),
        ("backward", "after", "backward_after"),
    ]
    inference = [(part.direction, part.when) for part in parts_of(cell.inference, TARGET)]
    assert inference == [("forward", "before"), ("forward", "step"), ("forward", "after")]


def test_routines_are_those_that_an_engine_makes_kernels_of() -> None:
    for target in (TARGET, Target()):
        for part in parts_of(tree_node().training, target):
            assert part.routine == routine_of(part.stage, target)


def test_what_a_part_computes_is_what_its_results_and_kept_values_need() -> None:
    (part,) = parts_of(textbook().training, TARGET)
    assert [node.op.name for node in part.computed] == ["linear", "linear", "multiply", "add"]
    for part in parts_of(tree_node().training, TARGET):
        assert set(part.computed) == {node for node in part.graph.nodes if node.op not in SOURCES}
        assert part.stage.kept.keys() <= set(part.computed)
