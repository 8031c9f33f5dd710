"""A report on one batch: what stands at every arrow from examples to gradients."""

from __future__ import annotations

from dataclasses import dataclass, field


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
        lines = [
            f"{self.examples} examples, {self.calls} calls in {self.steps} steps (lower bound {self.lower_bound})",
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
