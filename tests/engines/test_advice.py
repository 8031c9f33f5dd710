"""Advice says what costs a batch its time and what to try, each in numbers; what batches well has none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foldbatch.engines.report import Alternative, CellReport, Report, advice, worth_trying

FAST = {"trace": 1.0, "merge": 0.2, "tables": 0.5, "ready": 0.3, "forward": 3.0, "backward": 5.0}


def cell(name: str, *rows: int, gathered: int = 0, **more: object) -> CellReport:
    """A cell of no ops."""
    made = CellReport(
        name, sum(rows), sum(rows), recursive=True, rows=rows, forward={}, backward={}, gathered_rows=gathered
    )
    return replace(made, **more)


def report(*cells: CellReport, **more: object) -> Report:
    """A report on a batch of 8 examples that is planned quickly."""
    steps = sum(len(each.rows) for each in cells)
    made = Report(8, sum(each.calls for each in cells), steps, steps, 0, 0, 0, 0, FAST, cells)
    return replace(made, **more)


WIDE = cell("node", 90, 60, 40, 20, 5)


def test_wide_steps_need_none() -> None:
    assert advice(report(cell("leaf", 500), WIDE)) == ()
    assert advice(report(phases={})) == ()


def test_few_calls_in_all_steps_ask_for_larger_batches() -> None:
    (found,) = advice(report(cell("leaf", 500), cell("node", 8, 4, 2)))
    assert found == (
        "node: 3 of its 3 steps run fewer than 16 calls; batches of more examples make them larger"
    )


def test_many_examples_of_which_few_have_calls_ask_for_like_ones() -> None:
    (found,) = advice(report(cell("node", 64, 40, *[2] * 30), examples=64))
    assert found == (
        "node: 30 of its 32 steps run fewer than 16 calls; batches of more examples make them larger, and so "
        "may batches of like ones (foldbatch.train.bucketed)"
    )


def test_cells_that_differ_in_parameters_only_ask_for_one_table() -> None:
    """When there are many and their steps are small; other cells are not counted."""
    cells = [cell(f"case({k})", 3, 2, form=0) for k in range(4)]
    found = advice(report(*cells, cell("other", 3, 2)))[0]
    assert found == (
        "4 cells, as case(0), differ in parameters only and run 2.5 calls a step: with one table of weights, "
        "read by ops.gather, they would be one cell"
    )
    assert not any("ops.gather" in found for found in advice(report(*cells[:3], cell("other", 3, 2, form=1))))
    assert advice(report(*[cell(f"case({k})", 30, 20, form=0) for k in range(4)])) == ()


def test_a_quicker_policy_is_named_where_it_has_fewer_steps() -> None:
    """The quickest one of these, if it saves enough; time alone is no reason."""
    agenda = Alternative("policy='by_agenda'", 4, 145, 0.1, 0.201)
    depth = Alternative("policy='by_depth'", 3, 145, 0.0331, 0.201)
    found = advice(report(WIDE, alternatives=(agenda, depth)))
    assert found == (
        "try policy='by_depth': it took 33.1 ms instead of 201 ms for this batch, with 3 steps instead of 5",
    )
    for other in (replace(depth, instead=0.04), replace(depth, steps=5), replace(depth, steps=6)):
        assert advice(report(WIDE, alternatives=(other,))) == ()


def test_sharing_is_named_where_fewer_calls_run() -> None:
    other = Alternative("share='subtrees'", 5, 129, 0.5, 1.0)
    (found,) = advice(report(WIDE, alternatives=(other,)))
    assert found == (
        "try share='subtrees': it took 500 ms instead of 1 s for this batch, with 129 calls that run instead "
        "of 215"
    )
    assert advice(report(WIDE, alternatives=(replace(other, distinct=215),))) == ()


@pytest.mark.parametrize(
    ("changes", "policies"),
    [({}, False), ({"lower_bound": 4}, True), ({"phases": {"tables": 1.0, "forward": 1.0}}, False)],
)
def test_other_policies_are_tried_where_they_may_save(changes, policies) -> None:
    """Not where no schedule has fewer steps."""
    tried = worth_trying(report(WIDE, **changes), "by_depth", "leaves")
    assert {("policy", "by_component"), ("policy", "by_agenda")} <= set(tried) if policies else tried == []
    assert ("policy", "by_depth") not in tried


def test_sharing_is_tried_where_calls_may_repeat() -> None:
    repeatable = report(cell("node", 4, 2, repeatable=True))
    assert worth_trying(repeatable, "by_depth", "leaves") == [("share", "subtrees")]
    assert worth_trying(repeatable, "by_depth", "subtrees") == []
    assert worth_trying(report(cell("node", 1, repeatable=True)), "by_depth", None) == []
