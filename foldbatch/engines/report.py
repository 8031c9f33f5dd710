"""A report on one batch: its calls, steps, kernels, bytes and seconds, from examples to gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from foldbatch.engines.batch import Batch
from foldbatch.model.model import Model
from foldbatch.scheduler.policies import lower_bound
from foldbatch.static.graph import SOURCES
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

    @property
    def hit_rate(self) -> float:
        """The share of calls that found their result computed by an identical one, from 0 to 1."""
        return _hit_rate(self.calls, self.distinct)


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


@dataclass(frozen=True, slots=True)
class Report:
    """What a batch costs; prints itself.

    Attributes:
        examples: number of examples.
        calls: cell calls of all examples.
        steps: groups of calls that run together.
        lower_bound: groups that no schedule can do without.
        calls_forward: kernels called forward; `calls_backward` backward.
        gathered_rows: rows copied together because they did not lie side by side.
        buffer_bytes: bytes of all buffers held.
        phases: seconds of trace, merge, tables, ready (what the engine makes of these), forward and backward.
        cells: by cell.
        launches: the launch table, in order; none of an engine that has no such table.
        program: the tracing program's text.
        policy: how calls were grouped and why, where the policy chooses; else empty.
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
    program: str = field(repr=False, default="")
    policy: str = ""

    @property
    def distinct(self) -> int:
        """Calls that run: of identical ones that are shared, one."""
        return sum(cell.distinct for cell in self.cells)

    @property
    def hit_rate(self) -> float:
        """The share of calls that found their result computed by an identical one, from 0 to 1."""
        return _hit_rate(self.calls, self.distinct)

    def __str__(self) -> str:
        steps = f"{self.steps} steps (lower bound {self.lower_bound})"
        lines = [
            f"{self.examples} examples, {self.calls} calls in {steps}",
            *([f"policy: {self.policy}"] * bool(self.policy)),
            f"calls run: {_distinct(self)}",
            f"kernel calls: {self.calls_forward} forward, {self.calls_backward} backward",
            f"rows gathered: {self.gathered_rows}; buffers: {self.buffer_bytes / 1e6:.1f} MB",
            "seconds: " + ", ".join(f"{name} {value:.4f}" for name, value in self.phases.items()),
        ]
        for cell in self.cells:
            kind = "recursive, " if cell.recursive else ""
            rows = ", ".join(map(str, cell.rows[:24])) + (", ..." if len(cell.rows) > 24 else "")
            shared = f"{_distinct(cell)}, " if cell.distinct < cell.calls else ""
            lines.append(
                f"cell {cell.name}: {cell.calls} calls, {shared}{kind}rows per step: {rows or 'none'}"
            )
            lines.append(f"  ops forward: {_stages(cell.forward)}; backward: {_stages(cell.backward)}")
            for kind, names in (("losses", cell.losses), ("metrics", cell.metrics)):
                if names:
                    lines.append(f"  {kind}: {', '.join(dict.fromkeys(names))}")
            if cell.gathered_rows:
                lines.append(f"  rows gathered: {cell.gathered_rows}")
        for direction in ("forward", "backward"):
            launches = [launch for launch in self.launches if launch.direction == direction]
            if launches:
                lines.append(f"launches {direction}: {len(launches)}")
                lines += [f"  {self._launch(launch)}" for launch in launches[:24]]
                lines += ["  ..."] * (len(launches) > 24)
        return "\n".join(lines)

    __repr__ = __str__

    def _launch(self, launch: Launched) -> str:
        levels = f"{launch.levels} level{'s' * (launch.levels != 1)}"
        return f"{launch.stage} of {self.cells[launch.cell].name}: {levels}, {launch.rows} rows"


def _hit_rate(calls: int, distinct: int) -> float:
    return 1 - distinct / calls if calls else 0.0


def _distinct(report: CellReport | Report) -> str:
    return f"{report.distinct} distinct (hit rate {report.hit_rate:.1%})"


def _stages(ops: dict[str, int]) -> str:
    return ", ".join(f"{stage} {count}" for stage, count in ops.items()) or "none"


def report_on(
    batch: Batch,
    model: Model,
    levels: tuple[int, int],
    launches: Sequence[Launched],
    buffer_bytes: int,
    phases: dict[str, float],
) -> Report:
    """Return the report on a batch that has run.

    Args:
        batch: the batch.
        model: the model.
        levels: how many kernels ran forward, and backward.
        launches: the launch table.
        buffer_bytes: bytes of all buffers held.
        phases: seconds of each phase.
    """
    trace, schedule = batch.merged.trace, batch.schedule
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
        )
        for k, cell in enumerate(model.cells)
    )
    return Report(
        len(batch.results),
        trace.size,
        schedule.groups,
        lower_bound(model.signatures, trace.calls, trace.elements, trace.values),
        *levels,
        schedule.gathered_rows,
        buffer_bytes,
        phases,
        parts,
        tuple(launches),
        policy=schedule.reason,
    )


def _ops(stages: Mapping[str, Stage]) -> dict[str, int]:
    """Return how many ops each stage has, without views, which cost nothing."""
    return {
        name: sum(node.op not in SOURCES and not is_view(node) for node in stage.graph.nodes)
        for name, stage in stages.items()
    }
