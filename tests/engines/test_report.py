"""A report prints itself and is right."""

from __future__ import annotations

import foldbatch as fb
from foldbatch.engines.report import CellReport, Report


def _report(**changes: object) -> Report:
    cell = CellReport("node", 5, 5, True, (3, 2), {"before": 1, "step": 4}, {}, 2)
    fields = {
        "examples": 2,
        "calls": 9,
        "steps": 3,
        "lower_bound": 3,
        "calls_forward": 4,
        "calls_backward": 5,
        "gathered_rows": 2,
        "buffer_bytes": 2_500_000,
        "phases": {"trace": 0.5, "forward": 0.25},
        "cells": (cell,),
        "program": "def root(x): ...",
    }
    return Report(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_report_is_text_for_people() -> None:
    """Line by line."""
    assert str(_report()).splitlines() == [
        "2 examples, 9 calls in 3 steps (lower bound 3)",
        "calls run: 5 distinct (hit rate 44.4%)",
        "kernel calls: 4 forward, 5 backward",
        "rows gathered: 2; buffers: 2.5 MB",
        "seconds: trace 0.5000, forward 0.2500",
        "cell node: 5 calls, recursive, rows per step: 3, 2",
        "  ops forward: before 1, step 4; backward: none",
        "  rows gathered: 2",
    ]
    assert repr(_report()) == str(_report())


def test_long_lists_of_steps_are_cut() -> None:
    """A chain has thousands; a cell without calls has none."""
    many = CellReport("chain", 30, 30, True, (1,) * 30, {}, {}, 0)
    none = CellReport("unused", 0, 0, False, (), {}, {}, 0)
    text = str(_report(cells=(many, none)))
    assert f"rows per step: {'1, ' * 24}...\n" in text
    assert "cell unused: 0 calls, rows per step: none" in text


def test_what_is_shared_is_said_where_something_is() -> None:
    """Calls, how many of them run, and the rate of those that find their result computed."""
    leaf = CellReport("leaf", 8, 2, False, (2,), {}, {}, 0)
    none = CellReport("unused", 0, 0, False, (), {}, {}, 0)
    report = _report(calls=8, cells=(leaf, none))
    assert (leaf.hit_rate, none.hit_rate, report.distinct, report.hit_rate) == (0.75, 0.0, 2, 0.75)
    lines = str(report).splitlines()
    assert "calls run: 2 distinct (hit rate 75.0%)" in lines
    assert "cell leaf: 8 calls, 2 distinct (hit rate 75.0%), rows per step: 2" in lines


def test_describe_counts_what_runs() -> None:
    """Calls, steps, kernels and rows of a small batch, known by hand."""
    total = fb.ForwardDeclaration(output_type=[2], name="total")
    pair = fb.Record((total(), total())) >> fb.Concat() >> fb.Linear(2)
    total.resolve_to(fb.OneOf(lambda x: isinstance(x, tuple), {False: fb.Vector(2), True: pair}))
    program = fb.compile(total() >> fb.Function(fb.ops.sum) >> fb.Loss())
    report = program.describe([(([1, 2], [1, 2]), [1, 2]), ([1, 2], [1, 2])])  # no list in two places
    assert (report.examples, report.calls, report.steps, report.lower_bound) == (2, 10, 4, 4)
    by_name = {cell.name: cell for cell in report.cells}
    node = by_name["total.case(True)"]
    assert (node.calls, node.recursive, node.rows, node.gathered_rows) == (3, True, (2, 1), 0)
    assert node.distinct == 3
    assert (report.distinct, report.hit_rate) == (10, 0.0)
    assert report.calls_forward == 4
    assert report.gathered_rows == 0
    assert report.buffer_bytes > 0
    assert set(report.phases) == {"trace", "merge", "tables", "ready", "forward", "backward"}
    assert report.program == program.kernels()[: len(report.program)]


def test_losses_and_metrics_are_named() -> None:
    """Under the cell that yields them, each name once."""
    both = fb.AllOf(fb.Loss("near"), fb.Loss("far"), fb.Loss("near"), fb.Metric("seen"))
    report = fb.compile(fb.Scalar() >> both, "numpy").describe([1.0])
    assert (report.cells[0].losses, report.cells[0].metrics) == (("near", "far", "near"), ("seen",))
    assert [line for line in str(report).splitlines() if "near" in line] == ["  losses: near, far"]
    assert "  metrics: seen" in str(report).splitlines()
