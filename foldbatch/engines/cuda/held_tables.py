"""The table of a batch of held examples: what the host writes of it, and where the device writes the rest.

The host knows how many calls each slot has. From that follow bounds of levels, launches and the places of all
arrays. What is in the arrays the device works out, see `texts.holding`; they lie in memory of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from foldbatch.engines.bindings import Bound
from foldbatch.engines.cuda.holding import Holding
from foldbatch.engines.cuda.kernels import Kernel
from foldbatch.engines.cuda.packing import SUMMED, Direction, Packed
from foldbatch.engines.cuda.plans import plan_of
from foldbatch.engines.cuda.steps import steps_of
from foldbatch.engines.cuda.texts import holding as texts
from foldbatch.engines.cuda.texts.kernel_text import ADDRESSES_AT, HEADER
from foldbatch.engines.launch import FIELDS, FIRST, HEAD, INDEX, WIDTH, Ints, LaunchTable
from foldbatch.engines.launches import Directions, launch_tables
from foldbatch.errors import BackendError
from foldbatch.model.model import Model
from foldbatch.params import Array
from foldbatch.scheduler.schedule import CellTable, Schedule, Span, Step

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class HeldTable(CellTable):
    """A cell's part of the schedule of held examples: sizes, without what is in the arrays.

    Attributes:
        found: the example of each rank, worked out when asked for.
    """

    found: Callable[[], Ints] | None = None

    @property
    def examples(self) -> Ints:
        """The example of each rank: ``[n] int64``."""
        assert self.found is not None, "it was made with it"
        return self.found()


class Unmerged:
    """What stands for the merged traces of held examples: there are none."""

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse.

        Raises:
            BackendError: always.
        """
        raise refused("its results")


def refused(found: str) -> BackendError:
    """Return the error of what a batch of held examples cannot do."""
    fix = "give the examples, or prepared ones"
    return BackendError("hold", "a batch of held examples to be asked for losses and gradients", found, fix)


@dataclass(frozen=True, slots=True)
class HeldTables:
    """What is made of a batch of held examples.

    Attributes:
        schedule: sizes.
        tables: the launch tables, whose index arrays are empty.
        packed: the part of the packed table that the host writes; plans and rows of zeros have places in what
            the device makes.
        descriptor: where the descriptor begins.
        cells: where each cell's begins.
        targets: where in the table the address of each cell's data goes, by cell and feed.
        bases: where the rows of outputs stand.
        ranges: where the ranges stand, and how many.
        plans: where the plans stand, and how many.
        made: how many numbers the device makes.
    """

    schedule: Schedule
    tables: Directions
    packed: Packed
    descriptor: int
    cells: tuple[int, ...]
    targets: Mapping[tuple[int, int], int]
    bases: int
    ranges: tuple[int, int]
    plans: tuple[int, int]
    made: int


def held_tables(holding: Holding, bound: Bound, kernels: Sequence[Kernel], numbers: Ints) -> HeldTables:
    """Return what is made of some held examples.

    Args:
        holding: all that are held.
        bound: the routines.
        kernels: of the routines.
        numbers: ``[n] int64``: which examples.
    """
    model = holding.model
    counts = holding.counts[numbers].astype(np.int64)
    slots = np.array(holding.slots, np.int64)
    totals = counts.sum(0)
    calls = np.bincount(slots, totals, len(model.cells)).astype(np.int64)
    firsts = np.zeros(len(slots), np.int64)
    for k in range(len(model.cells)):
        own = np.flatnonzero(slots == k)
        firsts[own] = np.cumsum(totals[own]) - totals[own]
    offsets = np.cumsum(counts, 0) - counts
    schedule, bases = _schedule(holding, numbers, calls, totals, firsts, offsets)
    tables = launch_tables(bound, schedule)
    ids = _ids(holding, bound, numbers, firsts, offsets)
    packed, plans, ranges, made = _packed(bound, kernels, tables, schedule, ids)
    at = _index(model, calls)
    outputs = [(place, int(calls[k]), base) for (k, place), base in zip(at[1], bases, strict=True)]
    ranges = [*outputs, *ranges]
    base = np.zeros((len(slots), holding.outputs), np.int64)
    for (k, _), (j, first) in zip(at[1], _numbered(model, bases), strict=True):
        base[slots == k, j] = first + firsts[slots == k]
    return _described(holding, schedule, tables, packed, numbers, firsts, base, ranges, plans, made, at[0])


def _numbered(model: Model, bases: Sequence[int]) -> list[tuple[int, int]]:
    outputs = [j for signature in model.signatures for j in range(len(signature.outputs))]
    return list(zip(outputs, bases, strict=True))


def _schedule(
    holding: Holding, numbers: Ints, calls: Ints, totals: Ints, firsts: Ints, offsets: Ints
) -> tuple[Schedule, list[int]]:
    """Return the sizes of a schedule, and the first row of each cell's outputs, in order."""
    model = holding.model
    used = [0] * len(model.arenas)
    bases, cells = [], []
    for k, signature in enumerate(model.signatures):
        n = int(calls[k])
        for arena in signature.outputs:
            bases.append(used[arena])
            used[arena] += n
        spans = [
            Span(operand.arena, width, None, n * width, None, np.zeros(n * width, np.int64))
            for operand, width in zip(signature.operands, holding.reads[k], strict=True)
        ]
        rows = tuple([np.zeros(n, np.int64) for _ in signature.outputs])
        own = holding.counts[numbers][:, np.array(holding.slots) == k].sum(1).astype(np.int64)

        def examples(k: int = k) -> Ints:
            return _ranked(holding, k, numbers, firsts, offsets)[1]

        cells.append(HeldTable(np.arange(n), tuple(spans), rows, (), own, None, examples))
    steps = []
    for step, slot in holding.steps:
        start, count = (int(firsts[slot]), int(totals[slot])) if slot >= 0 else (0, int(calls[step.cell]))
        if count:
            steps.append(Step(step.cell, step.stages, start, start + count))
    zeros = tuple([np.zeros(rows, np.int64) for rows in used])
    return Schedule(tuple(cells), tuple(steps), tuple(used), zeros, np.zeros(0, np.int64)), bases


def _ranked(holding: Holding, k: int, numbers: Ints, firsts: Ints, offsets: Ints) -> tuple[Ints, Ints]:
    """Return by rank which of a cell's held calls it is, and of which example of the batch."""
    cell = holding.cells[k]
    lengths = cell.starts[numbers + 1] - cell.starts[numbers]
    examples = np.repeat(np.arange(len(numbers)), lengths)
    begins = np.cumsum(lengths) - lengths
    calls = np.arange(lengths.sum()) - np.repeat(begins - cell.starts[numbers], lengths)
    slots = cell.slots[calls]
    ranks = firsts[slots] + offsets[examples, slots] + cell.numbers[calls]
    order = np.empty_like(ranks)
    order[ranks] = np.arange(len(ranks))
    return calls[order], examples[order]


def _ids(
    holding: Holding, bound: Bound, numbers: Ints, firsts: Ints, offsets: Ints
) -> dict[tuple[int, int], Ints]:
    """Return, by cell and number of its sums of rows, the ids of the batch by rank."""
    found = {}
    for k, cell in enumerate(bound.model.cells):
        for i, sums in enumerate(cell.sums):
            if bound.training and len(holding.cells[k].slots):
                assert sums.ids.kind == "feed", "computed ids are refused"
                calls, _ = _ranked(holding, k, numbers, firsts, offsets)
                if len(calls):
                    found[k, i] = holding.cells[k].feeds[sums.ids.key][calls].astype(np.int64)
    return found


def _index(model: Model, calls: Ints) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
    """Return where the arrays of operands and outputs lie, in the order of `facts.facts_of`.

    Of operands: the cell, the operand and the place; of outputs: the cell and the place.
    """
    operands, outputs, end = [], [], 0
    for k, signature in enumerate(model.signatures):
        for i, operand in enumerate(signature.operands):
            operands.append((k, i, end))
            end += int(calls[k]) * (len(operand.columns) or 1)
        for _ in signature.outputs:
            outputs.append((k, end))
            end += int(calls[k])
    return operands, outputs


def _packed(
    bound: Bound,
    kernels: Sequence[Kernel],
    tables: Directions,
    schedule: Schedule,
    ids: Mapping[tuple[int, int], Ints],
) -> tuple[Packed, list[Triple], list[Triple], int]:
    """Return what the host packs; plans and ranges, as `texts.holding` has them; and where these end."""
    end, made = HEADER + len(bound.types) + SUMMED * len(ids), len(tables.forward.index)
    head = np.zeros(end, np.int64)
    head[ADDRESSES_AT] = HEADER
    runs, plans, ranges = [head], [], []
    directions: list[Direction | None] = []
    for table in (tables.forward, tables.backward):
        if table is None:
            directions.append(None)
            continue
        launches, bounds = end, end + table.launches.size
        runs += [table.launches.reshape(-1), table.bounds.reshape(-1)]
        end = bounds + table.bounds.size
        found = {}
        for key, source, count in _planned(kernels, table):
            found[key] = made, count
            plans.append((made, source, count))
            made += 3 * count + 2
        directions.append(Direction(table, tuple(steps_of(kernels, table, launches, bounds, found))))
    sums: dict[tuple[int, int], tuple[int, Ints]] = {}
    for of, rows in ids.items():
        plan = plan_of(rows.reshape(-1))
        sums[of] = end, plan[1 : 1 + plan[0]]
        runs.append(plan)
        end += len(plan)
    zeros = {}
    for arena, rows in enumerate(schedule.zero_rows):
        if tables.backward is not None and len(rows) and bound.model.arenas[arena].is_float:
            zeros[arena] = made, len(rows)
            ranges.append((made, len(rows), 0))
            made += len(rows)
    first, second = directions
    assert first is not None
    return Packed(np.concatenate(runs), first, second, sums, zeros), plans, ranges, made


def _planned(kernels: Sequence[Kernel], table: LaunchTable) -> list[tuple[tuple[int, int, int], int, int]]:
    """Return launch, level and binding of each plan, where its rows stand in the index, and how many."""
    made = []
    for number, row in enumerate(table.launches.tolist()):
        for task in kernels[row[0]].tasks:
            start = HEAD + FIELDS * task.planned
            if task.planned < 0 or row[start + FIRST] >= 0:
                continue
            for level in range(row[1], row[2]):
                low, high = table.bounds[level].tolist()
                width = row[start + WIDTH]
                place = row[start + INDEX] + low * width
                made.append(((number, level, task.planned), place, (high - low) * width))
    return made


def _described(
    holding: Holding,
    schedule: Schedule,
    tables: Directions,
    packed: Packed,
    numbers: Ints,
    firsts: Ints,
    base: Array,
    ranges: Sequence[tuple[int, int, int]],
    plans: Sequence[tuple[int, int, int]],
    made: int,
    operands: Sequence[tuple[int, int, int]],
) -> HeldTables:
    """Append the descriptor to the packed table."""
    counts, arrays = holding.on_device
    runs: list[Ints] = [packed.numbers]
    end = len(packed.numbers)

    def append(array: Array) -> int:
        nonlocal end
        place, end = end, end + array.size
        runs.append(np.asarray(array, np.int64).reshape(-1))
        return place

    head = np.zeros(texts.FIELDS, np.int64)
    descriptor = append(head)
    head = runs[-1]
    head[texts.EXAMPLES], head[texts.SLOTS], head[texts.OUTPUTS] = len(numbers), len(firsts), base.shape[1]
    head[texts.COUNTS] = counts.pointer
    head[texts.NUMBERS], head[texts.FIRSTS] = append(numbers), append(firsts)
    bases = append(base)
    ranges_at = append(np.array(ranges, np.int64).reshape(-1, 3)), len(ranges)
    plans_at = append(np.array(plans, np.int64).reshape(-1, 3)), len(plans)
    cells, targets = [], {}
    for k, cell in enumerate(holding.cells):
        starts, slots, ranks, rows, *feeds = arrays[k]
        columns = [
            (place + column, width)
            for (_, i, place), width in zip(
                [each for each in operands if each[0] == k], holding.reads[k], strict=True
            )
            for column in range(width)
            if i >= 0
        ]
        place = append(
            np.array([starts.pointer, slots.pointer, ranks.pointer, rows.pointer, len(columns), len(feeds)])
        )
        append(np.array(columns, np.int64))
        for i, feed in enumerate(feeds):
            nbytes = feed.nbytes // max(1, len(cell.slots))
            words = nbytes // 4 if nbytes % 4 == 0 else -nbytes
            targets[k, i] = append(np.array([feed.pointer, 0, words])) + 1
        cells.append(place)
    whole = Packed(np.concatenate(runs), packed.forward, packed.backward, packed.sums, packed.zeros)
    return HeldTables(
        schedule, tables, whole, descriptor, tuple(cells), targets, bases, ranges_at, plans_at, made
    )
