"""A report is text that a newcomer reads at once, and fits a screen."""

from __future__ import annotations

from dataclasses import replace

from foldbatch.engines.report import Captures, CellReport, Launched, Report

NODE = CellReport(
    "node", 7, 5, True, (3, 2), {"before": 1, "step": 4}, {"after": 2}, 2, ("near", "far"), ("seen",)
)
PHASES = {
    "trace": 0.001,
    "merge": 0.0005,
    "tables": 0.001,
    "ready": 0.0005,
    "forward": 0.006,
    "backward": 0.011,
}
REPORT = Report(2, 7, 2, 2, 4, 5, 2, 2_500_000, PHASES, (NODE,))


def test_a_report_is_text_for_people() -> None:
    """Line by line."""
    assert str(REPORT).splitlines() == [
        "2 examples: 7 calls of 1 cell run in 2 steps of 2.5 calls on average",
        "(a cell is work that always runs together; a step runs one cell for many calls at once)",
        "5 of the calls run; each of the others is identical to one of these",
        "no order of the calls needs fewer steps",
        "time: 20 ms in a first run; tracing the examples 5%, planning the steps 10%, forward 30%, backward 55%",
        "memory: 2.5 MB for this batch; 4 kernels run forward, 5 backward",
        "losses: near, far",
        "metrics: seen",
        "",
        "Cells, those with most small steps first",
        "cell  calls  steps  calls a step  largest step  calls that run  rows copied",
        "node      7      2           2.5             3               5            2",
        "",
        "What to try",
        "- node: 2 of its 2 steps run fewer than 16 calls; batches of more examples make them larger",
        "",
        "print(program.describe(examples).text(whole=True)) shows all cells, their ops and kernels",
    ]
    assert repr(REPORT) == "Report(2 examples, 7 calls in 2 steps; print it to read it)"


def test_fifty_cells_fit_a_screen() -> None:
    """The costly ones are shown, the others summed up."""
    cells = tuple(
        replace(NODE, name=f"case({k})", calls=3 * k, distinct=3 * k, rows=(3,) * k) for k in range(50)
    )
    slow = {"trace": 0.4, "tables": 0.4, "forward": 0.1}
    report = replace(REPORT, cells=cells, steps=1225, calls=3675, phases=slow, policy="by_depth")
    lines = str(report).splitlines()
    assert len(lines) <= 40
    assert sum(line.startswith("case(") for line in lines) == 10
    assert lines[lines.index("and 40 more cells: 2,340 calls in 780 steps, 3.0 calls a step") - 1].startswith(
        "case(40)"
    )
    whole = report.text(whole=True)
    assert all(f"case({k})" in whole for k in range(50))


def test_the_whole_tells_ops_and_kernels() -> None:
    """When each op of a cell runs; steps are cut where there are many."""
    launches = (Launched("forward", 0, "step", 2, 5), Launched("backward", 0, "step known", 1, 5))
    many = replace(NODE, name="chain", rows=(1,) * 30, recursive=False, forward={}, losses=())
    none = CellReport("unused", 0, 0, False, (), {}, {}, 0)
    text = replace(REPORT, launches=launches, cells=(NODE, many, none)).text(whole=True)
    assert text[text.index("Cell by cell") :].splitlines() == [
        "Cell by cell: calls of each step, and how many ops it runs when",
        f"chain: {'1, ' * 24}...",
        "  forward: none; backward: 2",
        "  metrics: seen",
        "node (recursive): 3, 2",
        "  forward: 1 before the recursion, 4 in each step; backward: 2 after the recursion",
        "  losses: near, far",
        "  metrics: seen",
        "unused: no steps",
        "  forward: none; backward: none",
        "Kernels forward, in order",
        "  node, in each step: 2 steps, 5 calls",
        "Kernels backward, in order",
        "  node, in each step (known): 1 step, 5 calls",
    ]


def test_captured_graphs_are_told_of() -> None:
    """How many batches are one launch, and why others are not."""
    captures = Captures((90, 120), 30, {"it has more calls than any class": 10}, (1.25, 3.75))
    lines = str(replace(REPORT, captures=captures)).splitlines()
    assert lines[6:9] == [
        "graphs: 30 of 40 training batches (75%) fit into one, of 90 or 120 slots",
        "10 did not: it has more calls than any class",
        "2 graphs captured while others ran, in 3.8 ms at most",
    ]
    assert captures.hit_rate == 0.75
    straight = Captures((), 0, {"no class is learned yet": 6}, ())
    lines = str(replace(REPORT, captures=straight)).splitlines()
    assert lines[6] == "graphs: 0 of 6 training batches (0%) fit into one"
    reason = "straight: asked for captured, which cannot be had (" + 20 * "why " + ")"
    lines = str(replace(REPORT, captures=straight._replace(reasons=(reason,)))).splitlines()
    assert [len(line) <= 100 for line in lines[6:8]] == [True, True]
    assert lines[6].startswith("straight: ")
    assert lines[7].startswith("  why")
    none = Captures((), 0, {}, ())
    assert none.hit_rate == 0.0
    assert str(replace(REPORT, captures=none)) == str(REPORT)
