"""A report on one batch: what stands at every arrow from examples to gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from foldbatch.runtime.batch import Batch
from foldbatch.scheduler.policies import lower_bound
from foldbatch.scheduler.trace import CellSignature
from foldbatch.static.cell import Cell


@dataclass(frozen=True, slots=True)
class CellReport:
    """One cell: its calls, in how many steps they run, and the widths of those steps.

    `before`, `step` and `after` are the ops each forward stage runs; `rows` the rows of each step.
    """

    name: str
    calls: int
    recursive: bool
    rows: tuple[int, ...]
    forward: dict[str, int]
    backward: dict[str, int]
    gathered_rows: int


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
        phases: seconds of trace, merge, tables, forward and backward.
        cells: by cell.
        program: the tracing program's text.
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
    program: str = field(repr=False, default="")

    def __str__(self) -> str:
        steps = f"{self.steps} steps (lower bound {self.lower_bound})"
        lines = [
            f"{self.examples} examples, {self.calls} calls in {steps}",
            f"kernel calls: {self.calls_forward} forward, {self.calls_backward} backward",
            f"rows gathered: {self.gathered_rows}; buffers: {self.buffer_bytes / 1e6:.1f} MB",
            "seconds: " + ", ".join(f"{name} {value:.4f}" for name, value in self.phases.items()),
        ]
        for cell in self.cells:
            kind = "recursive, " if cell.recursive else ""
            rows = ", ".join(map(str, cell.rows[:24])) + (", ..." if len(cell.rows) > 24 else "")
            lines.append(f"cell {cell.name}: {cell.calls} calls, {kind}rows per step: {rows or 'none'}")
            lines.append(f"  ops forward: {_stages(cell.forward)}; backward: {_stages(cell.backward)}")
            if cell.gathered_rows:
                lines.append(f"  rows gathered: {cell.gathered_rows}")
        return "\n".join(lines)

    __repr__ = __str__


def _stages(ops: dict[str, int]) -> str:
    return ", ".join(f"{stage} {count}" for stage, count in ops.items()) or "none"


def report_on(
    batch: Batch,
    cells: Sequence[Cell],
    signatures: Sequence[CellSignature],
    kernel_calls: tuple[int, int],
    buffer_bytes: int,
    phases: dict[str, float],
    program: str,
) -> Report:
    """Return the report on a batch that has run.

    Args:
        batch: the batch.
        cells: the cells.
        signatures: the scheduler's view of them.
        kernel_calls: kernels called forward, and backward.
        buffer_bytes: bytes of all buffers held.
        phases: seconds of each phase.
        program: the tracing program's text.
    """
    trace, schedule = batch.merged.trace, batch.schedule
    parts = tuple(
        CellReport(
            cell.name,
            len(trace.calls[k]),
            signatures[k].recursive,
            tuple(schedule.widths(k)),
            {stage: kernel.calls for stage, kernel in cell.forward.items()},
            {stage: kernel.calls for stage, kernel in cell.backward.items()},
            sum(span.gathered for span in schedule.cells[k].operands),
        )
        for k, cell in enumerate(cells)
    )
    return Report(
        len(batch.results),
        trace.size,
        schedule.groups,
        lower_bound(signatures, trace.calls, trace.elements, trace.values),
        *kernel_calls,
        schedule.gathered_rows,
        buffer_bytes,
        phases,
        parts,
        program,
    )
