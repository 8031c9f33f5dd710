"""Advice on a batch: what keeps it from being quick, with an option to try. All of it is measured or counted.

A function of a report, and of nothing else; `foldbatch.Program.describe` and `foldbatch.bench` print it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from foldbatch.scheduler.policies import POLICIES

if TYPE_CHECKING:
    from foldbatch.engines.report import CellReport, Report


class Stepped(Protocol):
    """What is known of a cell's steps: the calls of each, and how many run in all."""

    @property
    def rows(self) -> tuple[int, ...]:
        """The calls of each step."""
        ...

    @property
    def distinct(self) -> int:
        """All calls that run."""
        ...


C = TypeVar("C", bound=Stepped)

PLANNING = "merge", "tables", "ready"  # the phases from traces to a batch that can run
FEW = 16  # calls in a step: with fewer, a matrix product takes about as long as reading its weights
MUCH = 0.3  # of the time of a batch
LESS = 0.8  # of the time that a batch takes: an option that needs more than that is not worth trying
SMALL = 0.1  # a cell with a smaller share of all steps, or calls, is not worth a sentence
MANY_COPIED = 0.5  # rows copied, for each call that runs
MANY_ALIKE = 4  # cells that differ in nothing but their parameters
SENTENCES = 4  # at most; the first ones matter most


def advice(report: Report) -> tuple[str, ...]:
    """Return a sentence for each thing that costs a batch much time; none if nothing does.

    >>> from dataclasses import replace
    >>> import foldbatch as fb
    >>> add = fb.Function(lambda a, b: a + b)
    >>> program = fb.compile(fb.Map(fb.Scalar()) >> fb.Fold(add, fb.Zeros([])))
    >>> advice(replace(program.describe([[0.0, 1.0], [2.0]]), alternatives=(), phases={"forward": 1.0}))
    ('model.combine: 2 of its 2 steps run fewer than 16 calls; batches of more examples make them larger',)
    """
    sentences = [*_quicker(report), *_planning(report), *_tracing(report), *_alike(report), *_narrow(report)]
    for cell in by_cost(report.cells):
        sentences += _copied(cell, report)
    return tuple(sentences[:SENTENCES])


def by_cost(cells: Iterable[C]) -> list[C]:
    """Return cells in order of what they cost: those with most steps of few calls first, then most steps."""
    return sorted(cells, key=lambda cell: (_few(cell), len(cell.rows), cell.distinct), reverse=True)


def worth_trying(report: Report, policy: str, share: str | None) -> list[tuple[str, str]]:
    """Return other options for a batch, as names and values: those that may take less time.

    Args:
        report: on the batch.
        policy: the policy that it was planned by.
        share: which identical calls ran once.
    """
    options = []
    if report.steps > report.lower_bound or _share(report, *PLANNING) > MUCH:
        options += [("policy", name) for name in POLICIES if name != policy]
    if share != "subtrees" and any(cell.repeatable and cell.distinct > 1 for cell in report.cells):
        options.append(("share", "subtrees"))
    return options


def _share(report: Report, *phases: str) -> float:
    total = sum(report.phases.values())
    return sum(report.phases.get(name, 0.0) for name in phases) / total if total else 0.0


def _few(cell: Stepped) -> int:
    """Return how many steps have few calls."""
    return sum(rows < FEW for rows in cell.rows)


def _quicker(report: Report) -> Iterator[str]:
    """Name the quickest policy that was tried, and the quickest way to share, if they save enough."""
    for kind in ("policy", "share"):
        tried = [other for other in report.alternatives if other.option.startswith(kind)]
        best = min(tried, key=lambda other: other.seconds, default=None)
        if best is None or best.seconds >= LESS * best.instead:
            continue
        planning, reason = _share(report, *PLANNING), ""
        counts = f"{best.distinct:,} calls run instead of {report.distinct:,}"
        if kind == "policy":
            counts = f"{best.steps:,} steps instead of {report.steps:,}"
            reason = f"planning is {planning:.0%} of the time; " if planning > MUCH else ""
        took = f"{duration(best.seconds)} instead of {duration(best.instead)}"
        yield f"{reason}try {best.option}: it took {took} for this batch, with {counts}"


def _planning(report: Report) -> Iterator[str]:
    quicker = any(other.seconds < LESS * other.instead for other in report.alternatives)
    if _share(report, *PLANNING) > MUCH and not quicker:
        yield (
            f"planning is {_share(report, *PLANNING):.0%} of the time: program.plan(examples) plans a batch "
            "that runs often only once, foldbatch.train.prefetched plans the next batch while one runs"
        )


def _tracing(report: Report) -> Iterator[str]:
    if _share(report, "trace") > MUCH:
        yield (
            f"tracing the examples is {_share(report, 'trace'):.0%} of the time: a foldbatch.trees.Tree is "
            "traced only once, other examples if you prepare them (Program.prepare, foldbatch.prepare)"
        )


def _alike(report: Report) -> Iterator[str]:
    """Say that many cells do the same with other parameters, in steps of few calls."""
    alike: dict[int, list[CellReport]] = {}
    for cell in report.cells:
        if cell.rows and cell.form is not None:
            alike.setdefault(cell.form, []).append(cell)
    for cells in alike.values():
        steps = sum(len(cell.rows) for cell in cells)
        mean = sum(cell.distinct for cell in cells) / steps
        if len(cells) >= MANY_ALIKE and steps >= SMALL * report.steps and mean < FEW:
            yield (
                f"{len(cells)} cells, as {cells[0].name}, differ in parameters only and run {mean:.1f} "
                "calls a step: with one table of weights, read by ops.gather, they would be one cell"
            )


def _narrow(report: Report) -> Iterator[str]:
    """Say that most steps of some cells have few calls, and what makes them larger."""
    cells = [cell for cell in by_cost(report.cells) if len(cell.rows) > 1 and 2 * _few(cell) > len(cell.rows)]
    steps = sum(len(cell.rows) for cell in cells)
    if not cells or steps < SMALL * report.steps:
        return
    fix = "batches of more examples make them larger"
    if report.examples >= FEW:
        fix += ", and so may batches of like ones (foldbatch.train.bucketed)"
    first = cells[0]
    if len(cells) == 1:
        yield f"{first.name}: {_few(first)} of its {steps} steps run fewer than {FEW} calls; {fix}"
    else:
        mean = sum(cell.distinct for cell in cells) / steps
        yield f"{len(cells)} cells, most of all {first.name}, run {mean:.1f} calls a step; {fix}"


def _copied(cell: CellReport, report: Report) -> Iterator[str]:
    """Say that many of the rows that a cell reads are copied first."""
    if cell.distinct >= SMALL * report.distinct and cell.gathered_rows > MANY_COPIED * cell.distinct:
        yield (
            f"{cell.name}: {cell.gathered_rows:,} rows are copied for its {cell.distinct:,} calls, as a "
            "result that several calls read can lie beside one of them only"
        )


def duration(seconds: float) -> str:
    """Return a time as text, in milliseconds below a second.

    >>> duration(0.0331), duration(1.234)
    ('33.1 ms', '1.23 s')
    """
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
