"""A report on one batch: its calls, steps, kernels, bytes and seconds, from examples to gradients."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from foldbatch.engines.advice import advice
from foldbatch.engines.batch import Batch
from foldbatch.engines.report_text import text_of
from foldbatch.errors import counted
from foldbatch.model.model import Model
from foldbatch.scheduler.levels import lower_bound
from foldbatch.static.graph import SOURCES, Graph
from foldbatch.static.printer import print_graph
from foldbatch.static.routines import Stage
from foldbatch.static.stages import is_view


@dataclass(frozen=True, slots=True)
class CellReport:
    """One cell: its calls, in how many steps they run, and the widths of those steps.

    Attributes:
        name: the name of the cell.
        calls: the number of its calls, of all examples.
        distinct: how many of them run; the others are identical to one that does (`share` of
            `foldbatch.compile`).
        recursive: whether it calls itself.
        rows: the number of rows of each step.
        forward: by stage, the number of ops that it runs forward; `backward` likewise.
        gathered_rows: rows copied together because they did not lie side by side.
        losses: the names of the losses that it yields; `metrics` likewise.
        repeatable: whether identical calls of it may run once, if asked for (`share` of `foldbatch.compile`).
        form: a number that it shares with the cells that differ from it in their parameters only; None of a
            cell without parameters.
    """

    name: str
    calls: int
    distinct: int
    recursive: bool
    rows: tuple[int, ...]
    forward: dict[str, int]
    backward: dict[str, int]
    gathered_rows: int
    losses: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    repeatable: bool = False
    form: int | None = None

    @property
    def hit_rate(self) -> float:
        """The share of calls that found their result computed by an identical one, from 0 to 1."""
        return _hit_rate(self.calls, self.distinct)

    @property
    def mean_rows(self) -> float:
        """Calls that run in a step, on average; 0 without steps."""
        return self.distinct / len(self.rows) if self.rows else 0.0


class Launched(NamedTuple):
    """A launch: a kernel on some levels.

    Attributes:
        direction: ``forward`` or ``backward``.
        cell: the number of the cell.
        stage: of the cell.
        levels: how many levels it runs, one after the other.
        rows: calls in all of these.
    """

    direction: str
    cell: int
    stage: str
    levels: int
    rows: int


class Captures(NamedTuple):
    """What batches of one kind were run by graphs that a GPU has captured, each by one launch.

    Attributes:
        launches: of each class of batches, the slots of its graph, each for one kernel; without the update of
            parameters.
        hits: batches that fit into a class.
        misses: batches that did not, by reason; they ran kernel by kernel.
        milliseconds: how long it took to capture each graph.
        reasons: why the last batch was launched as it was, in lines.
    """

    launches: tuple[int, ...]
    hits: int
    misses: Mapping[str, int]
    milliseconds: tuple[float, ...]
    reasons: tuple[str, ...] = ()

    @property
    def hit_rate(self) -> float:
        """The share of batches that fit into a class, from 0 to 1; 0 without batches."""
        batches = self.hits + sum(self.misses.values())
        return self.hits / batches if batches else 0.0


@dataclass(frozen=True, slots=True)
class Alternative:
    """The same batch, run with another option of `foldbatch.compile`.

    Attributes:
        option: as it is written, for example ``policy='by_depth'``.
        steps: groups of calls that run together.
        distinct: calls that run.
        seconds: of planning, forward and backward; `instead` those without the option, measured beside it.
    """

    option: str
    steps: int
    distinct: int
    seconds: float
    instead: float


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What a batch costs; prints itself.

    Attributes:
        examples: number of examples.
        calls: cell calls of all examples.
        steps: groups of calls that run together.
        lower_bound: groups that no schedule can do without.
        calls_forward: kernels called forward; `calls_backward` backward.
        gathered_rows: rows copied together because they did not lie side by side.
        buffer_bytes: bytes of the buffers that this batch needs.
        phases: seconds of trace, merge, tables, ready (what the engine makes of these), forward and backward.
            Where a GPU runs both passes together, they are counted as backward.
        cells: by cell.
        launches: the launch table, in order; none of an engine that has no such table.
        program: the tracing program's text.
        policy: how calls were grouped and why, where the policy chooses; else empty.
        alternatives: the same batch with other options, where these may be quicker.
        captures: of an engine that captures graphs, what training batches it has run by these; else None.
    """

    examples: int
    calls: int
    steps: int
    lower_bound: int
    calls_forward: int
    calls_backward: int
    gathered_rows: int
    buffer_bytes: int
    phases: dict[str, float]
    cells: tuple[CellReport, ...]
    launches: tuple[Launched, ...] = ()
    program: str = ""
    policy: str = ""
    alternatives: tuple[Alternative, ...] = ()
    captures: Captures | None = None

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
        """Return the report as text of 40 lines at most; if `whole`, all cells, their ops and kernels."""
        return text_of(self, whole=whole)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        calls = f"{counted(self.calls, 'call')} in {counted(self.steps, 'step')}"
        return f"Report({counted(self.examples, 'example')}, {calls}; print it to read it)"


def _hit_rate(calls: int, distinct: int) -> float:
    return 1 - distinct / calls if calls else 0.0


def report_on(
    batch: Batch,
    model: Model,
    launches: Sequence[Launched],
    buffer_bytes: int,
    phases: dict[str, float],
) -> Report:
    """Return the report on a batch that has run.

    Args:
        batch: the batch.
        model: the model.
        launches: the launch table.
        buffer_bytes: bytes of the buffers that the batch needs.
        phases: seconds of each phase.
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
            _ops(cell.training.forward),
            _ops(cell.training.backward),
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
        sum(each.levels for each in launches if each.direction == "forward"),
        sum(each.levels for each in launches if each.direction == "backward"),
        schedule.gathered_rows,
        buffer_bytes,
        phases,
        parts,
        tuple(launches),
        policy=schedule.reason,
    )


def _forms(model: Model) -> list[int | None]:
    """Return a number for each cell with parameters: alike where cells differ in their parameters only."""
    numbers: dict[tuple[int, str], int] = {}
    forms: list[int | None] = []
    for cell, signature in zip(model.cells, model.signatures, strict=True):
        text = print_graph(Graph(cell.graph.inputs, cell.graph.results))
        form = signature.component, re.sub(r" = parameter .*", " = parameter", text)
        forms.append(numbers.setdefault(form, len(numbers)) if cell.parameters else None)
    return forms


def _ops(stages: Mapping[str, Stage]) -> dict[str, int]:
    """Return how many ops each stage has, without views, which cost nothing."""
    return {
        name: sum(node.op not in SOURCES and not is_view(node) for node in stage.graph.nodes)
        for name, stage in stages.items()
    }
