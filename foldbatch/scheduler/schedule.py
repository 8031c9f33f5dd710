"""A schedule: which rows of which cell run when, and where each operand lies. Plain integers.

Within a cell, calls are numbered by *rank*: the order in which they run. Everything that
belongs to a cell alone (its data, its kept buffers) is stored by rank, so every step sees
slices of it. What cells read from each other lies in *arenas*, one for each set of values that
can reach the same operands; a `RowSpan` says where.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from foldbatch.scheduler.trace import Columns, Trace
from foldbatch.scheduler.trace import Index as Index

ALL = ("before", "step", "after")  # the stages of a cell, in the order in which a call goes through them


class RowSpan(NamedTuple):
    """Where an operand's rows lie in its arena, in rank order, `width` rows a call (or element)."""

    arena: int  # the arena's number
    width: int  # rows read side by side by each call
    sequence: int | None  # None, or the sequence argument whose elements are read, one row each
    size: int  # rows read in all
    start: int | None  # the first row, when they are consecutive; else None, and `rows` holds them all
    rows: Index | None  # ``[calls * width] int64``, or None
    repeats: bool = False  # whether a row is read more than once, so that cotangents must be summed
    first: bool = False  # whether cotangents may be stored, because no other reader has stored any before

    def extent(self, table: CellTable, start: int, stop: int) -> tuple[int, int]:
        """Return the first and last position that ranks start to stop read: into `rows`, or the arena."""
        if self.sequence is not None:
            segments = table.segments[self.sequence]
            start, stop = int(segments[start]), int(segments[stop])
        offset = self.start or 0
        return offset + start * self.width, offset + stop * self.width

    @property
    def gathered(self) -> int:
        """Rows that must be copied together before a kernel can read them."""
        return 0 if self.rows is None else self.size


@dataclass(frozen=True, slots=True)
class CellTable:
    """One cell's part of a schedule."""

    order: Index  # ``[n] int64``: for each rank, the call's place in the merged trace
    operands: tuple[RowSpan, ...]  # where each operand lies
    outputs: tuple[Index, ...]  # per output ``[n] int64``: the arena row each result goes to, by rank
    segments: tuple[Index, ...]  # per sequence argument ``[n + 1] int64``: where each call's elements start
    counts: Index  # ``[examples] int64``: how many of the cell's calls each example makes
    # None, or ``[n + 1] int64``, where calls share ranks (see `sharing`): rank i stands for calls
    # ``copies[i]`` to ``copies[i + 1]``, and `outputs` have a row for each of these
    copies: Index | None = None

    @property
    def examples(self) -> Index:
        """The example of each rank: ``[n] int64``; made when asked for, as few batches need it."""
        examples: Index = np.repeat(np.arange(len(self.counts)), self.counts)[self.order]
        return examples

    def written(self, output: int, start: int, stop: int) -> Index:
        """Return the arena rows that ranks start to stop write an output to."""
        if self.copies is not None:
            start, stop = int(self.copies[start]), int(self.copies[stop])
        return self.outputs[output][start:stop]


class Step(NamedTuple):
    """Run the named stages of a cell on ranks start to stop; a tuple, as a long chain has very many."""

    cell: int
    stages: tuple[str, ...]
    start: int
    stop: int


class Flat(NamedTuple):
    """A schedule in one array, as launches are made of it."""

    memory: Index  # ``[*] int64``: the array; its header has the offsets of its parts
    header: Sequence[int]
    orders: tuple[Index, ...]  # per cell, `CellTable.order`
    feeds: Columns  # per cell and feed, the data in these orders


@dataclass(frozen=True, slots=True)
class Schedule:
    """All that a batch needs besides weights and data.

    Of one that is flat, all but the reason is made when it is asked for.
    """

    cells: tuple[CellTable, ...]  # a table per cell
    steps: tuple[Step, ...]  # in forward order; backward runs them reversed
    arena_rows: tuple[int, ...]  # rows per arena
    # per arena, the rows whose cotangents nobody stores and that must start at 0
    zero_rows: tuple[Index, ...]
    row_of: Index  # ``[values] int64``: the arena row of each value
    reason: str = ""  # what the policy has chosen and why, see `policies.RunOrder`
    # the same in one array, where that is at hand, and what makes a part of it, given the name
    flat: Flat | None = field(default=None, init=False, repr=False, compare=False)
    part: Callable[[str], object] | None = field(default=None, init=False, repr=False, compare=False)

    def __getattr__(self, name: str) -> Any:
        if name not in LATE:
            raise AttributeError(f"Schedule has no attribute {name}")
        assert self.part is not None, "a schedule has its tables or is flat"
        _set(self, name, self.part(name))
        return getattr(self, name)

    def __reduce__(self) -> tuple[Callable[..., Schedule], tuple[object, ...]]:
        return Schedule, (self.cells, self.steps, self.arena_rows, self.zero_rows, self.row_of, self.reason)

    @property
    def orders(self) -> tuple[Index, ...]:
        """Per cell, `CellTable.order`."""
        return tuple([table.order for table in self.cells]) if self.flat is None else self.flat.orders

    def arranged(self, trace: Trace) -> Columns:
        """Return the data of the merged trace in rank order; per cell and feed, ``[n, ...]``."""
        if self.flat is not None:
            return self.flat.feeds
        columns = zip(trace.feeds, self.orders, strict=True)
        return tuple(
            [tuple([data.take(order, axis=0) for data in cell_data]) for cell_data, order in columns]
        )

    @property
    def groups(self) -> int:
        """Groups of calls that run together: what a scheduling policy tries to make few."""
        return sum(_is_group(step) for step in self.steps)

    def widths(self, cell: int) -> list[int]:
        """Return the calls of each of a cell's groups, in forward order."""
        return [s.stop - s.start for s in self.steps if s.cell == cell and _is_group(s)]

    @property
    def gathered_rows(self) -> int:
        """Rows that operands gather by index instead of reading a slice."""
        return sum(span.gathered for table in self.cells for span in table.operands)


_set = object.__setattr__  # how this module writes to a schedule
LATE = frozenset(("cells", "steps", "arena_rows", "zero_rows", "row_of"))


def late_schedule(flat: Flat, part: Callable[[str], object], reason: str) -> Schedule:
    """Return a schedule that is flat; arguments are attributes of `Schedule`."""
    schedule = Schedule.__new__(Schedule)
    _set(schedule, "flat", flat)
    _set(schedule, "part", part)
    _set(schedule, "reason", reason)
    return schedule


def seeded(schedule: Schedule, arenas: Collection[int]) -> Schedule:
    """Return a schedule for a backward pass that finds cotangents in some arenas when it begins.

    Nobody may store over them, so all rows of these arenas start at zero and all readers add.
    """
    cells = tuple(
        replace(
            table,
            operands=tuple(
                span._replace(first=False) if span.arena in arenas else span for span in table.operands
            ),
        )
        for table in schedule.cells
    )
    zero_rows = tuple(
        np.arange(schedule.arena_rows[arena]) if arena in arenas else rows
        for arena, rows in enumerate(schedule.zero_rows)
    )
    return replace(schedule, cells=cells, zero_rows=zero_rows)


def without(schedule: Schedule, cells: Collection[int]) -> Schedule:
    """Return a schedule for a forward pass in which some cells have no calls.

    No other cell may read their values; those of the others stay in their rows.
    """
    none = np.zeros(0, np.int64)
    tables = list(schedule.cells)
    for k in cells:
        table = tables[k]
        operands = tuple(
            [span._replace(size=0, start=0, rows=None, repeats=False) for span in table.operands]
        )
        segments = tuple([np.zeros(1, np.int64)] * len(table.segments))
        outputs = (none,) * len(table.outputs)
        tables[k] = CellTable(none, operands, outputs, segments, np.zeros_like(table.counts))
    steps = tuple([step for step in schedule.steps if step.cell not in cells])
    return replace(schedule, cells=tuple(tables), steps=steps)


def _is_group(step: Step) -> bool:
    """Before and after stages of a recursive cell accompany its steps; they are no groups."""
    return step.stop > step.start and ("step" in step.stages)


def verify(schedule: Schedule, outputs: tuple[tuple[int, ...], ...]) -> None:
    """Check a schedule against all that can be said of it without the trace it is for.

    Every call goes through all stages once, in order, after its arguments have been computed; every
    row holds one value; every row's cotangent is set to zero or stored by one operand.

    Raises:
        AssertionError: naming the cell or the arena, and what is wrong.
    """
    written = [np.zeros(rows, bool) for rows in schedule.arena_rows]
    stages_done = [np.zeros(len(table.order), int) for table in schedule.cells]
    for number, table in enumerate(schedule.cells):
        distinct = np.unique(table.order)
        fits = table.copies is not None or np.array_equal(distinct, np.arange(len(table.order)))
        fits = fits and len(distinct) == len(table.order)
        assert fits, f"cell {number}: order is no permutation"
    for step in schedule.steps:
        table = schedule.cells[step.cell]
        stages_run = stages_done[step.cell][step.start : step.stop]
        for stage in step.stages:
            assert (stages_run == ALL.index(stage)).all(), (
                f"cell {step.cell}: {stage} runs twice or out of turn"
            )
            stages_run += 1
        if not _is_group(step):
            continue
        for span, rows in ((span, _rows(span, table, step)) for span in table.operands):
            ready = written[span.arena][rows].all()
            assert ready, f"cell {step.cell}: ranks {step.start}.. read a value too early"
        for output, arena in enumerate(outputs[step.cell]):
            result_rows = table.written(output, step.start, step.stop)
            assert not written[arena][result_rows].any(), f"cell {step.cell}: two values share a row"
            assert len(np.unique(result_rows)) == len(result_rows), (
                f"cell {step.cell}: two values share a row"
            )
            written[arena][result_rows] = True
    for number, stages_run in enumerate(stages_done):
        assert (stages_run == len(ALL)).all(), f"cell {number}: a call does not run all stages"
    for arena, mask in enumerate(written):
        assert mask.all(), f"arena {arena}: a row is never written"
    _verify_cotangents(schedule)


def _verify_cotangents(schedule: Schedule) -> None:
    """Assert that each row's cotangent is either stored by one operand, or begins at zero."""
    times = [np.zeros(rows, int) for rows in schedule.arena_rows]
    for counts, rows in zip(times, schedule.zero_rows, strict=True):
        np.add.at(counts, rows, 1)
    for number, table in enumerate(schedule.cells):
        for span in (span for span in table.operands if span.first):
            assert span.start is not None, f"cell {number}: an operand stores cotangents of scattered rows"
            times[span.arena][span.start : span.start + span.size] += 1
    for arena, count in enumerate(times):
        assert (count == 1).all(), f"arena {arena}: a cotangent is not initialised, or twice"


def _rows(span: RowSpan, table: CellTable, step: Step) -> Index:
    start, stop = span.extent(table, step.start, step.stop)
    return span.rows[start:stop] if span.rows is not None else np.arange(start, stop)
