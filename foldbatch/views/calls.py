"""The calls of a batch as data: the calls that each reads, its step, and whether it runs at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foldbatch.engines.batch import Batch
from foldbatch.scheduler.schedule import Index
from foldbatch.scheduler.trace import CellSignature, arguments_of, lengths_of


@dataclass(frozen=True, slots=True)
class Call:
    """A call.

    Attributes:
        example: its number in the batch.
        cell: its number.
        step: the number of the step that computes its result.
        reads: the numbers of the calls whose results it reads.
        runs: whether it runs; if not, an identical one in its step does.
    """

    example: int
    cell: int
    step: int
    reads: tuple[int, ...]
    runs: bool


@dataclass(frozen=True, slots=True)
class DrawnStep:
    """A step: the number of its cell, how many calls run, and how many take their results from these."""

    cell: int
    runs: int
    calls: int


def calls_of(batch: Batch, cells: Sequence[CellSignature]) -> tuple[tuple[Call, ...], tuple[DrawnStep, ...]]:
    """Return the calls of a batch, those that are read first, and the steps in order."""
    trace = batch.merged.trace
    numbers = range(len(cells))
    step_of, steps = _steps(batch, [_ranks(batch, cells, k) for k in numbers])
    runs = [np.zeros(len(calls), bool) for calls in trace.calls]
    for mask, table in zip(runs, batch.schedule.cells, strict=True):
        mask[table.order] = True
    reads = [_reads(batch, cells, k) for k in numbers]
    examples = [batch.merged.examples(k) for k in numbers]
    sweep = sorted(
        (int(base), k, i) for k, rows in enumerate(trace.calls) for i, base in enumerate(rows[:, 0])
    )
    maker: dict[int, int] = {}  # by the number of a value, the number of the call that makes it
    calls: list[Call] = []
    for base, k, i in sweep:
        maker |= dict.fromkeys(range(base, base + len(cells[k].outputs)), len(calls))
        sources = tuple(dict.fromkeys(maker[value] for value in reads[k][i]))
        calls.append(Call(int(examples[k][i]), k, int(step_of[k][i]), sources, bool(runs[k][i])))
    return tuple(calls), steps


def _steps(batch: Batch, ranks: Sequence[Index]) -> tuple[list[Index], tuple[DrawnStep, ...]]:
    """Return the step of every call, per cell ``[calls] int64``, and the steps.

    Shapes: `ranks`, per cell ``[calls] int64``: at which rank of the cell each call's result is computed.
    """
    schedule = batch.schedule
    of_rank = [np.zeros(len(table.order), np.int64) for table in schedule.cells]
    steps = [step for step in schedule.steps if "step" in step.stages and step.stop > step.start]
    for number, step in enumerate(steps):
        of_rank[step.cell][step.start : step.stop] = number
    of_call = [numbers[rank] for numbers, rank in zip(of_rank, ranks, strict=True)]
    calls = np.bincount(np.concatenate([np.zeros(0, np.int64), *of_call]), minlength=len(steps))
    counted = zip(steps, calls.tolist(), strict=True)
    return of_call, tuple(DrawnStep(step.cell, step.stop - step.start, count) for step, count in counted)


def _ranks(batch: Batch, cells: Sequence[CellSignature], k: int) -> Index:
    """Return the rank at which the result of each of a cell's calls is computed: ``[calls] int64``."""
    bases, table = batch.merged.trace.calls[k][:, 0], batch.schedule.cells[k]
    if table.copies is None:
        ranks = np.zeros(len(bases), np.int64)
        ranks[table.order] = np.arange(len(table.order))
        return ranks
    # identical calls, copied or not, are recognised by the rows of their results
    rank_of_row = np.zeros(batch.schedule.arena_rows[cells[k].outputs[0]], np.int64)
    rank_of_row[table.outputs[0]] = np.repeat(np.arange(len(table.order)), np.diff(table.copies))
    return rank_of_row[batch.schedule.row_of[bases]]


def _reads(batch: Batch, cells: Sequence[CellSignature], k: int) -> list[list[int]]:
    """Return the numbers of the values that each of a cell's calls reads: n lists."""
    trace = batch.merged.trace
    reads: list[list[int]] = arguments_of(trace, cells, k).tolist()
    for sequence, elements in enumerate(trace.elements[k]):
        ends = np.cumsum(lengths_of(trace, cells, k, sequence))
        for values, part in zip(reads, np.split(elements, ends[:-1]), strict=False):
            values.extend(part.ravel().tolist())
    return reads
