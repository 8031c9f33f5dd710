"""Advice names the cell that batches badly and the reason; what batches well has none."""

from __future__ import annotations

from dataclasses import replace

from foldbatch.engines.report import CellReport, Report
from foldbatch.gain.advice import advice


def _report(*cells: CellReport, bound: int | None = None) -> Report:
    steps = sum(len(cell.rows) for cell in cells)
    calls = sum(cell.calls for cell in cells)
    return Report(8, calls, steps, steps if bound is None else bound, 0, 0, 0, 0, {}, cells)


def _cell(name: str, *rows: int, gathered: int = 0) -> CellReport:
    return CellReport(
        name, sum(rows), sum(rows), recursive=True, rows=rows, forward={}, backward={}, gathered_rows=gathered
    )


FAST = {"trace": 1.0, "forward": 9.0}


def test_wide_steps_need_none() -> None:
    assert advice(_report(_cell("leaf", 500), _cell("node", 90, 60, 40, 20, 5)), FAST) == ()


def test_few_rows_in_all_steps_ask_for_larger_batches() -> None:
    (found,) = advice(_report(_cell("leaf", 500), _cell("node", 8, 4, 2)), FAST)
    assert (
        found
        == "node: 3 of its 3 steps have fewer than 16 rows, the widest 8; larger batches make them wider"
    )


def test_a_few_deep_examples_ask_for_examples_of_like_height() -> None:
    (found,) = advice(_report(_cell("node", 64, 40, *[2] * 30)), FAST)
    assert found.startswith(
        "node: 30 of its 32 steps have fewer than 16 rows, the widest 64: some examples are deeper"
    )
    assert "foldbatch.train.bucketed" in found


def test_a_cell_with_few_of_all_steps_is_not_worth_a_sentence() -> None:
    assert advice(_report(_cell("rare", 1, 1), _cell("node", *[99] * 30)), FAST) == ()


def test_many_steps_ask_for_another_policy() -> None:
    wide = _cell("node", *[50] * 16)
    assert advice(_report(wide, bound=12), FAST) == ()
    (found,) = advice(_report(wide, bound=10), FAST)
    assert found.startswith("16 steps, where 10 might do")


def test_copied_rows_are_said() -> None:
    """When they are many, of a cell that is called often."""
    assert advice(_report(_cell("node", 100, gathered=50)), FAST) == ()
    (found,) = advice(_report(_cell("node", 100, gathered=51)), FAST)
    assert found.startswith("node: 51 rows are copied for its 100 calls")
    rare = replace(_cell("rare", 5), gathered_rows=5)
    assert advice(_report(rare, _cell("node", 100)), FAST) == ()


def test_slow_tracing_is_said() -> None:
    (found,) = advice(_report(_cell("node", 100)), {"trace": 3.0, "forward": 1.0})
    assert found.startswith("tracing new examples takes 75% of the time")
