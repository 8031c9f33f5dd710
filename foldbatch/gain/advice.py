"""What batches badly and why, read off what was measured with a batch: sentences for the user."""

from __future__ import annotations

from collections.abc import Mapping

from foldbatch.engines.report import CellReport, Report

FEW_ROWS = 16  # below, a matrix product takes about as long as reading its weights
MANY_STEPS = 1.5  # times the steps that no schedule can do without
MANY_GATHERED = 0.5  # rows copied, for each call that runs
MUCH_TRACING = 0.3  # of the time of all phases
SMALL = 0.1  # a cell with a smaller share of all steps, or calls, is not worth a sentence


def advice(report: Report, phases: Mapping[str, float]) -> tuple[str, ...]:
    """Return a sentence for each thing that keeps a batch from running as few large steps.

    Args:
        report: on the batch.
        phases: seconds of each phase, of examples that were never seen.

    >>> import foldbatch as fb
    >>> add = fb.Function(lambda a, b: a + b)
    >>> program = fb.compile(fb.Map(fb.Scalar()) >> fb.Fold(add, fb.Zeros([])))
    >>> advice(program.describe([[0.0, 1.0], [2.0]]), {"forward": 1.0})
    ('model.combine: 2 of its 2 steps have fewer than 16 rows, the widest 2; larger batches make them wider',)
    """
    sentences = []
    tracing = phases.get("trace", 0.0) / sum(phases.values())
    if tracing > MUCH_TRACING:
        sentences.append(
            f"tracing new examples takes {tracing:.0%} of the time; it is saved where they are known: trees "
            "from the second epoch on, others after Program.prepare or foldbatch.prepare"
        )
    if report.steps > MANY_STEPS * report.lower_bound:
        sentences.append(
            f"{report.steps} steps, where {report.lower_bound} might do; compare the policies of "
            "foldbatch.compile: auto, by_component, by_agenda and by_depth"
        )
    for cell in sorted(report.cells, key=_steps, reverse=True):
        sentences += [sentence for sentence in (_narrow(cell, report), _scattered(cell, report)) if sentence]
    return tuple(sentences)


def _steps(cell: CellReport) -> int:
    return len(cell.rows)


def _narrow(cell: CellReport, report: Report) -> str:
    """Say that most steps of a cell have few rows, and which of two reasons it has; else nothing."""
    few = sum(rows < FEW_ROWS for rows in cell.rows)
    if len(cell.rows) < 2 or len(cell.rows) < SMALL * report.steps or few <= len(cell.rows) / 2:
        return ""
    steps = f"{cell.name}: {few} of its {len(cell.rows)} steps have fewer than {FEW_ROWS} rows"
    if max(cell.rows) < FEW_ROWS:
        return f"{steps}, the widest {max(cell.rows)}; larger batches make them wider"
    return (
        f"{steps}, the widest {max(cell.rows)}: some examples are deeper than others, which batches of "
        "like height keep apart (foldbatch.train.bucketed)"
    )


def _scattered(cell: CellReport, report: Report) -> str:
    """Say that many of the rows that a cell reads are copied first; else nothing."""
    if cell.distinct < SMALL * report.distinct or cell.gathered_rows <= MANY_GATHERED * cell.distinct:
        return ""
    return (
        f"{cell.name}: {cell.gathered_rows} rows are copied for its {cell.distinct} calls, as a result that "
        "several calls read can lie beside one of them only"
    )
