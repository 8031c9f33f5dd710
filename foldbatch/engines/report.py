"""A report on one batch: calls, steps, kernels, bytes and seconds, from examples to gradients; with advice.

All advice follows from what was counted, or from medians of warm runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import NamedTuple

from foldbatch.engines.batch import ScheduledBatch
from foldbatch.errors import counted
from foldbatch.model.model import Model
from foldbatch.scheduler.levels import lower_bound
from foldbatch.static.graph import Graph
from foldbatch.static.printer import graph_form
from foldbatch.system.showing import Printed, table


@dataclass(frozen=True, slots=True)
class CellReport:
    """One cell: its calls, in how many steps they run, and the widths of those steps."""

    name: str
    calls: int  # of all examples
    distinct: int  # how many of them run; the others are identical to one that does (`share` of `compile`)
    recursive: bool  # whether it calls itself
    rows: tuple[int, ...]  # the number of rows of each step
    gathered_rows: int  # rows copied together because they did not lie side by side
    losses: tuple[str, ...] = ()  # the names of the losses that it yields
    metrics: tuple[str, ...] = ()
    repeatable: bool = False  # whether identical calls of it may run once (`share` of `compile`)
    form: int | None = None  # alike in cells that differ in their parameters only; None without parameters

    @property
    def hit_rate(self) -> float:
        """The share of calls that found their result computed by an identical one, from 0 to 1."""
        return _hit_rate(self.calls, self.distinct)

    @property
    def mean_rows(self) -> float:
        """Calls that run in a step, on average; 0 without steps."""
        return self.distinct / len(self.rows) if self.rows else 0.0


class Captures(NamedTuple):
    """The counts of batches of one kind that a GPU ran as captured graphs, each by one launch."""

    # of each class of batches, the slots of its graph, each for one kernel; without the update of parameters
    launches: tuple[int, ...]
    hits: int  # batches that fit into a class
    misses: Mapping[str, int]  # batches that did not, by reason; they ran kernel by kernel
    milliseconds: tuple[float, ...]  # how long it took to capture each graph
    reasons: tuple[str, ...] = ()  # why the last batch was launched as it was, in lines

    @property
    def hit_rate(self) -> float:
        """The share of batches that fit into a class, from 0 to 1; 0 without batches."""
        batches = self.hits + sum(self.misses.values())
        return self.hits / batches if batches else 0.0


class Shared(NamedTuple):
    """The same batch, run with ``share='subtrees'`` (see `foldbatch.compile`)."""

    distinct: int  # calls that run
    seconds: float  # of planning, forward and backward, medians in turn
    instead: float  # the same without the option


class MemoryBound(NamedTuple):
    """How a batch runs under the option ``memory`` of `foldbatch.compile`."""

    limit: int  # the option, in bytes
    nbytes: int  # bytes that it needs at most at any time
    parts: int  # how many parts its examples run in; 1 where it runs as a whole
    windows: int  # of all parts that are computed twice, into how many windows they are cut; else 0


@dataclass(frozen=True, slots=True, repr=False)
class Report(Printed):
    """The costs of a batch; prints itself."""

    examples: int
    calls: int  # cell calls of all examples
    steps: int  # groups of calls that run together
    lower_bound: int  # groups that no schedule can do without
    calls_forward: int  # kernels called forward
    calls_backward: int
    gathered_rows: int  # rows copied together because they did not lie side by side
    buffer_bytes: int  # bytes of the buffers that this batch needs
    # seconds of trace, merge, tables, ready (what the engine makes of these), forward and backward: medians
    # of `runs`. Where a GPU runs both passes together, they are counted as backward.
    phases: dict[str, float]
    cells: tuple[CellReport, ...]
    program: str = ""  # the tracing program's text
    policy: str = ""  # how calls were grouped and why, where the policy chooses; else empty
    shared: Shared | None = None  # with more calls shared, where that may be quicker
    captures: Captures | None = None  # what training batches ran by graphs, where an engine captures them
    remarks: tuple[str, ...] = ()  # what is to be said of the model, in sentences
    bound: MemoryBound | None = None  # how it is cut where its memory is bounded; times are those of it cut
    runs: int = 0  # how often the batch ran to be timed, after a first run; 0 where that one was timed

    @property
    def distinct(self) -> int:
        """Calls that run: of identical ones that are shared, one."""
        return sum(cell.distinct for cell in self.cells)

    @property
    def hit_rate(self) -> float:
        """The share of calls that found their result computed by an identical one, from 0 to 1."""
        return _hit_rate(self.calls, self.distinct)

    @property
    def mean_rows(self) -> float:
        """Calls that run in a step, on average; 0 without steps."""
        return self.distinct / self.steps if self.steps else 0.0

    @property
    def advice(self) -> tuple[str, ...]:
        """A sentence for each thing that costs much time, with an option to try; see `advice`."""
        return advice(self)

    def text(self, *, whole: bool = False) -> str:
        """Return the report as text of 40 lines at most; if `whole`, with all cells."""
        return text_of(self, all_cells=whole)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        calls = f"{counted(self.calls, 'call')} in {counted(self.steps, 'step')}"
        return f"Report({counted(self.examples, 'example')}, {calls}; print it to read it)"


def _hit_rate(calls: int, distinct: int) -> float:
    return 1 - distinct / calls if calls else 0.0


def report_on(
    batch: ScheduledBatch, model: Model, kernels: tuple[int, int], buffer_bytes: int, phases: dict[str, float]
) -> Report:
    """Return the report on a batch that has run: counts of calls, steps and rows, by cell and in all.

    Args:
        batch: the batch.
        model: its model.
        kernels: the counts that `Engine.launched` returned.
        buffer_bytes: the memory that its buffers take.
        phases: the seconds of each part of its run, by name.
    """
    trace, schedule = batch.merged.trace, batch.schedule
    forms = _forms(model)
    parts = tuple(
        CellReport(
            cell.name,
            len(trace.calls[k]),
            len(schedule.cells[k].order),
            model.signatures[k].recursive,
            tuple(schedule.widths(k)),
            sum(span.gathered for span in schedule.cells[k].operands),
            model.losses[k],
            model.metrics[k],
            model.signatures[k].repeatable and not model.signatures[k].shareable,
            forms[k],
        )
        for k, cell in enumerate(model.cells)
    )
    return Report(
        len(batch.results),
        trace.size,
        schedule.groups,
        lower_bound(model.signatures, trace.calls, trace.elements, trace.values),
        *kernels,
        schedule.gathered_rows,
        buffer_bytes,
        phases,
        parts,
        policy=schedule.reason,
    )


def _forms(model: Model) -> list[int | None]:
    """Return a number for each cell with parameters: alike where cells differ in their parameters only."""
    numbers: dict[tuple[int, str], int] = {}
    forms: list[int | None] = []
    for cell, signature in zip(model.cells, model.signatures, strict=True):
        graph = Graph(cell.graph.inputs, cell.graph.results)
        form = signature.component, repr(graph_form(graph, names=False))
        forms.append(numbers.setdefault(form, len(numbers)) if cell.parameters else None)
    return forms


# -- as text

CELLS = 10  # shown unless all are asked for
WIDTH = 100  # of advice
PLANNING = "merge", "tables", "ready"  # the phases from traces to a batch that can run
TIMES = {
    "tracing the examples": ("trace",),
    "deciding, in rounds": ("rounds",),
    "planning the steps": PLANNING,
    "forward": ("forward",),
    "backward": ("backward",),
}


def text_of(report: Report, *, all_cells: bool) -> str:
    """Return a report as text: at most 40 lines, or with `all_cells` a line for every cell."""
    lines = [*_counts(report), *_costs(report), ""]
    shown = by_cost(report.cells)[: None if all_cells else CELLS]
    lines += _cells(report, shown)
    sentences = advice(report)
    if sentences:
        lines += ["", "What to try"]
        for sentence in sentences:
            lines += wrap(
                sentence, WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
            )
    if len(shown) < len(report.cells):
        lines += ["", "print(program.describe(examples).text(whole=True)) shows all cells"]
    return "\n".join(lines)


def _counts(report: Report) -> Iterator[str]:
    """Yield the lines on examples, calls and steps."""
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
    for remark in report.remarks:
        yield from wrap(remark, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _costs(report: Report) -> Iterator[str]:
    """Yield the lines on time, memory and kernels."""
    total = sum(report.phases.values())
    if total:
        parts = [(name, sum(report.phases.get(p, 0.0) for p in phases)) for name, phases in TIMES.items()]
        shares = ", ".join(f"{name} {seconds / total:.0%}" for name, seconds in parts if seconds)
        runs = f", medians of {counted(report.runs, 'run')}" if report.runs else " in a first run"
        yield f"time: {duration(total)}{runs}; {shares}"
    kernels = f"{report.calls_forward:,} kernels run forward, {report.calls_backward:,} backward"
    yield f"memory: {report.buffer_bytes / 1e6:.1f} MB for this batch; {kernels}"
    if report.bound is not None:
        yield _bounded(report.bound)
    if report.captures is not None:
        yield from _captures(report.captures)
    for kind in ("losses", "metrics"):
        names = dict.fromkeys(name for cell in report.cells for name in getattr(cell, kind))
        if names:
            yield f"{kind}: {', '.join(names)}"


def _bounded(bound: MemoryBound) -> str:
    """Return the line on a bound of memory."""
    way = "as a whole" if bound.parts == 1 else f"in {counted(bound.parts, 'part')}"
    if bound.windows:
        way += f" cut into {counted(bound.windows, 'window')}, whose values are computed twice"
    limit, needed = f"{bound.limit / 1e6:,.3g} MB", f"{bound.nbytes / 1e6:,.3g} MB"
    return f"with at most {limit} (the option memory) it runs {way}: {needed}"


def _captures(captures: Captures) -> Iterator[str]:
    """Yield the lines on captured graphs."""
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
        count, longest = len(captures.milliseconds), max(captures.milliseconds)
        yield f"{counted(count, 'graph')} captured while others ran, in {longest:.1f} ms at most"


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
    yield from table(tuple(columns), zip(*columns.values(), strict=True), title=title).splitlines()
    unlisted = by_cost(report.cells)[len(shown) :]
    if unlisted:
        ran, took = sum(cell.distinct for cell in unlisted), sum(len(cell.rows) for cell in unlisted)
        mean = f", {ran / took:.1f} calls a step" if took else ""
        steps = f"{counted(ran, 'call')} in {counted(took, 'step')}{mean}"
        yield f"and {counted(len(unlisted), 'more cell')}: {steps}"


# -- advice


SHORT_STEP = 16  # calls in a step: with fewer, a matrix product takes about as long as reading its weights
LARGE_SHARE = 0.3  # of the time of a batch
WORTH_TRYING = 0.8  # of the time that a batch takes: an option that needs more than that is not worth trying
SMALL_SHARE = 0.1  # a cell with a smaller share of all steps, or calls, is not worth a sentence
MANY_ALIKE = 4  # cells that differ in nothing but their parameters
SENTENCES = 4  # at most; the first ones matter most


def advice(report: Report) -> tuple[str, ...]:
    """Return a sentence for each thing that costs a batch much time; none if nothing does."""
    kinds = _quicker, _planning, _tracing, _alike, _narrow
    return tuple(sentence for kind in kinds for sentence in kind(report))[:SENTENCES]


def by_cost(cells: Iterable[CellReport]) -> list[CellReport]:
    """Return cells in order of what they cost: those with most steps of few calls first, then most steps."""
    return sorted(cells, key=lambda cell: (_short_steps(cell), len(cell.rows), cell.distinct), reverse=True)


def may_share(report: Report, share: str | None) -> bool:
    """Return whether more calls may be shared than a batch shares."""
    return share != "subtrees" and any(cell.repeatable and cell.distinct > 1 for cell in report.cells)


def _share(report: Report, *phases: str) -> float:
    total = sum(report.phases.values())
    return sum(report.phases.get(name, 0.0) for name in phases) / total if total else 0.0


def _short_steps(cell: CellReport) -> int:
    return sum(rows < SHORT_STEP for rows in cell.rows)


def _quicker(report: Report) -> Iterator[str]:
    """Name the sharing of more calls, if it saves enough time."""
    shared, before = report.shared, report.distinct
    if shared is not None and shared.distinct < before and shared.seconds < WORTH_TRYING * shared.instead:
        took = f"{duration(shared.seconds)} instead of {duration(shared.instead)} for this batch"
        calls = f"{shared.distinct:,} calls that run instead of {before:,}"
        yield f"try share='subtrees': it took {took}, with {calls}"


def _planning(report: Report) -> Iterator[str]:
    if _share(report, *PLANNING) > LARGE_SHARE:
        yield (
            f"planning is {_share(report, *PLANNING):.0%} of the time: program.plan(examples) plans a batch "
            "that runs often only once, foldbatch.train.prefetched plans the next batch while one runs"
        )


def _tracing(report: Report) -> Iterator[str]:
    if _share(report, "trace") > LARGE_SHARE:
        yield (
            f"tracing the examples is {_share(report, 'trace'):.0%} of the time: a foldbatch.trees.Tree is "
            "traced only once, other examples if you prepare them (Program.prepare)"
        )


def _alike(report: Report) -> Iterator[str]:
    """Advise where many cells differ in parameters only, and run in steps of few calls."""
    alike: dict[int, list[CellReport]] = {}
    for cell in report.cells:
        if cell.rows and cell.form is not None:
            alike.setdefault(cell.form, []).append(cell)
    for cells in alike.values():
        steps = sum(len(cell.rows) for cell in cells)
        mean = sum(cell.distinct for cell in cells) / steps
        if len(cells) >= MANY_ALIKE and steps >= SMALL_SHARE * report.steps and mean < SHORT_STEP:
            yield (
                f"{len(cells)} cells, as {cells[0].name}, differ in parameters only and run {mean:.1f} "
                "calls a step: with one table of weights, read by ops.gather, they would be one cell"
            )


def _narrow(report: Report) -> Iterator[str]:
    """Yield a line of advice if most steps of some cells have few calls: larger or more uniform batches."""
    cells = [
        cell
        for cell in by_cost(report.cells)
        if len(cell.rows) > 1 and 2 * _short_steps(cell) > len(cell.rows)
    ]
    steps = sum(len(cell.rows) for cell in cells)
    if not cells or steps < SMALL_SHARE * report.steps:
        return
    fix = "batches of more examples make them larger"
    if report.examples >= SHORT_STEP:
        fix += ", and so may batches of like ones (foldbatch.train.bucketed)"
    first = cells[0]
    if len(cells) == 1:
        count = _short_steps(first)
        yield f"{first.name}: {count} of its {steps} steps run fewer than {SHORT_STEP} calls; {fix}"
    else:
        mean = sum(cell.distinct for cell in cells) / steps
        yield f"{len(cells)} cells, most of all {first.name}, run {mean:.1f} calls a step; {fix}"


def duration(seconds: float) -> str:
    """Return a time as text, in milliseconds below a second."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
