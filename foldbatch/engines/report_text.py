"""A report as people read it: what was batched, where the time goes, the costly cells, and what to try."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from foldbatch.engines.advice import PLANNING, advice, by_cost, duration
from foldbatch.errors import counted

if TYPE_CHECKING:
    from foldbatch.engines.report import Captures, CellReport, Report

CELLS = 10  # shown unless all are asked for
WIDTH = 100  # of advice
ROWS = 24  # steps of a cell whose sizes are listed
TIMES = {
    "tracing the examples": ("trace",),
    "planning the steps": PLANNING,
    "forward": ("forward",),
    "backward": ("backward",),
}
STAGES = {"before": "before the recursion", "step": "in each step", "after": "after the recursion"}


def text_of(report: Report, *, whole: bool) -> str:
    """Return a report as text: at most 40 lines, or with `whole` all cells, their ops and all kernels."""
    lines = [*_counts(report), *_costs(report), ""]
    shown = by_cost(report.cells)[: None if whole else CELLS]
    lines += _cells(report, shown)
    sentences = advice(report)
    if sentences:
        lines += ["", "What to try"]
        for sentence in sentences:
            lines += wrap(
                sentence, WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
            )
    lines.append("")
    if whole:
        lines += [*_ops(shown), *_launches(report)]
    else:
        lines.append(
            "print(program.describe(examples).text(whole=True)) shows all cells, their ops and kernels"
        )
    return "\n".join(lines).rstrip()


def _counts(report: Report) -> Iterator[str]:
    cells = sum(cell.calls > 0 for cell in report.cells)
    steps = f"{counted(report.steps, 'step')} of {report.mean_rows:.1f} calls on average"
    yield (
        f"{counted(report.examples, 'example')}: {counted(report.calls, 'call')} of {counted(cells, 'cell')} "
        f"run in {steps}"
    )
    yield "(a cell is work that always runs together; a step runs one cell for many calls at once)"
    if report.distinct < report.calls:
        yield f"{report.distinct:,} of the calls run; each of the others is identical to one of these"
    if report.steps > report.lower_bound:
        yield f"any order of the calls needs {counted(report.lower_bound, 'step')} or more"
    else:
        yield "no order of the calls needs fewer steps"
    if report.policy:
        yield f"policy: {report.policy}"


def _costs(report: Report) -> Iterator[str]:
    total = sum(report.phases.values())
    if total:
        parts = [(name, sum(report.phases.get(p, 0.0) for p in phases)) for name, phases in TIMES.items()]
        shares = ", ".join(f"{name} {seconds / total:.0%}" for name, seconds in parts if seconds)
        yield f"time: {duration(total)}; {shares}"
    kernels = f"{report.calls_forward:,} kernels run forward, {report.calls_backward:,} backward"
    yield f"memory: {report.buffer_bytes / 1e6:.1f} MB for this batch; {kernels}"
    if report.captures is not None:
        yield from _captures(report.captures)
    for kind in ("losses", "metrics"):
        names = dict.fromkeys(name for cell in report.cells for name in getattr(cell, kind))
        if names:
            yield f"{kind}: {', '.join(names)}"


def _captures(captures: Captures) -> Iterator[str]:
    for reason in captures.reasons:
        yield from wrap(reason, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    batches = captures.hits + sum(captures.misses.values())
    if not batches:
        return
    slots = " or ".join(f"{count:,}" for count in captures.launches)
    yield (
        f"graphs: {captures.hits:,} of {batches:,} training batches ({captures.hit_rate:.0%}) fit into one"
        + f", of {slots} slots" * bool(slots)
    )
    for reason, count in captures.misses.items():
        yield f"{count:,} did not: {reason}"
    if captures.milliseconds:
        count, most = len(captures.milliseconds), max(captures.milliseconds)
        yield f"{counted(count, 'graph')} captured while others ran, in {most:.1f} ms at most"


def _cells(report: Report, shown: Sequence[CellReport]) -> Iterator[str]:
    """Yield a table of cells, and a line for those that are left out."""
    columns = {
        "cell": [cell.name for cell in shown],
        "calls": [f"{cell.calls:,}" for cell in shown],
        "steps": [f"{len(cell.rows):,}" for cell in shown],
        "calls a step": [f"{cell.mean_rows:.1f}" for cell in shown],
        "largest step": [f"{max(cell.rows, default=0):,}" for cell in shown],
    }
    if report.distinct < report.calls:
        columns["calls that run"] = [f"{cell.distinct:,}" for cell in shown]
    if report.gathered_rows:
        columns["rows copied"] = [f"{cell.gathered_rows:,}" for cell in shown]
    title = "Cells, those with most small steps first"
    yield from table(title, tuple(columns), zip(*columns.values(), strict=True)).splitlines()
    rest = by_cost(report.cells)[len(shown) :]
    if rest:
        ran, took = sum(cell.distinct for cell in rest), sum(len(cell.rows) for cell in rest)
        mean = f", {ran / took:.1f} calls a step" if took else ""
        steps = f"{counted(ran, 'call')} in {counted(took, 'step')}{mean}"
        yield f"and {counted(len(rest), 'more cell')}: {steps}"


def _ops(cells: Iterable[CellReport]) -> Iterator[str]:
    yield "Cell by cell: calls of each step, and how many ops it runs when"
    for cell in cells:
        rows = ", ".join(map(str, cell.rows[:ROWS])) + ", ..." * (len(cell.rows) > ROWS)
        yield f"{cell.name}{' (recursive)' * cell.recursive}: {rows or 'no steps'}"
        forward, backward = (_ops_by_stage(cell, ops) for ops in (cell.forward, cell.backward))
        yield f"  forward: {forward}; backward: {backward}"
        for kind in ("losses", "metrics"):
            if names := getattr(cell, kind):
                yield f"  {kind}: {', '.join(dict.fromkeys(names))}"


def _ops_by_stage(cell: CellReport, ops: dict[str, int]) -> str:
    if not cell.recursive:
        return str(sum(ops.values()) or "none")
    return ", ".join(f"{count} {STAGES[stage]}" for stage, count in ops.items()) or "none"


def _launches(report: Report) -> Iterator[str]:
    for direction in ("forward", "backward"):
        launches = [launch for launch in report.launches if launch.direction == direction]
        if launches:
            yield f"Kernels {direction}, in order"
        for launch in launches:
            cell = report.cells[launch.cell]
            stage, *variant = launch.stage.split()
            when = [f", {STAGES[stage]}"] * cell.recursive + [f" ({name})" for name in variant]
            steps = f"{counted(launch.levels, 'step')}, {counted(launch.rows, 'call')}"
            yield f"  {cell.name}{''.join(when)}: {steps}"


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as text: the first column to the left, the others to the right.

    >>> print(table("Sizes", ("name", "count"), [("a", "10"), ("longer", "7")]))
    Sizes
    name    count
    a          10
    longer      7
    """
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = []
    for first, *others in lines:
        right = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        texts.append("  ".join([first.ljust(widths[0]), *right]).rstrip())
    return "\n".join([title, *texts])
