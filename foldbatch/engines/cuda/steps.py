"""A batch's packed table; and its steps: every kernel and product of a direction, in order, which are walked.

*The table* has all whole numbers that kernels read, in one run that is copied once. The head (see
`kernel_text`) tells where numbers of 32 bits begin, where addresses of buffers lie, and the address of the
status. Then follow these addresses, and two more for each sum of rows (its values and their places); for each
direction launches and levels; the levels of whole cells. All these have 64 bits. Of 32 bits, for they number
rows, are the index arrays; what tells which ranks are calls; plans; and rows that are set to zero. Of a batch
with rooms, every part has its place whatever the batch.

*Steps*, but for addresses, follow from a batch's schedule alone. So they are made once a batch, before its
memory is known, and serve again where a batch is run again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.bindings import Bound, Directions
from foldbatch.engines.cuda import few_rows, tensor_products
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.driver import Function, MatrixProduct
from foldbatch.engines.cuda.fixed_kernels import plan_of
from foldbatch.engines.cuda.kernel_text import (
    ADDRESSES_AT,
    CALLS,
    CAPACITY,
    ELEMENTS,
    HEADER,
    INDEX_AT,
    LEVEL,
    LIVE,
    STATUS_AT,
)
from foldbatch.engines.cuda.kernels import Kernel, LevelTask
from foldbatch.engines.cuda.matrices import Matrix, Multiplied
from foldbatch.engines.cuda.tensor_products import PRECISION, TEXTS, is_tensor_product
from foldbatch.engines.launch import HEAD, Fields, Ints, LaunchTable
from foldbatch.planning.facts import fact_names
from foldbatch.planning.rooms import Measures, Placed, RoomPlaces, RoomWriter
from foldbatch.scheduler.rooms import Rooms, is_level, wholes_of
from foldbatch.scheduler.schedule import Flat, Schedule
from foldbatch.static.op import CALL, UNBATCHED, Axis

SUMMED = 2  # addresses of a sum of rows
Ids = Mapping[tuple[int, int], Ints]
_NONE = np.zeros(0, np.int64)


def entry(row: Sequence[int], binding: int, number: int) -> int:
    return row[HEAD + Fields.size * binding + number]


@dataclass(frozen=True, slots=True)
class Direction:
    """Where one direction lies in a packed table."""

    table: LaunchTable  # the launch table; with rooms, that of a batch that takes all of them
    launches: int  # where its rows begin
    levels: tuple[int, ...]  # where the record of each level lies
    # by launch, level and binding, where a plan lies, and how many targets it has at most
    plans: Mapping[tuple[int, int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A batch's packed table, but for the addresses."""

    numbers: Ints  # ``[*] int64``; its last ones are two numbers of 32 bits each
    forward: Direction  # where that direction lies
    backward: Direction | None  # the other one, while training
    # by cell and number of its sums of rows, where the plan lies, and its targets
    sums: Mapping[tuple[int, int], tuple[int, Ints]]
    # by arena, where the rows of cotangents that are set to zero lie, after their count; and how many there
    # are at most
    zeros: Mapping[int, tuple[int, int]]
    wholes: Mapping[int, int]  # by cell with losses, where the record of a level of all its calls lies
    # by cell whose calls are gone through together, with rooms, where its axes lie, see `Placed.places`
    maps: Mapping[int, int]

    def filled(self, target: Ints, addresses: Ints, sums: Sequence[int], status: int) -> None:
        """Write the table, with addresses of buffers and of sums: ``target: [len(numbers)]``."""
        target[:] = self.numbers
        target[STATUS_AT] = status
        end = HEADER + len(addresses)
        target[HEADER:end] = addresses
        target[end : end + len(sums)] = sums


@dataclass(slots=True)
class _IntegerRuns:
    """Runs of numbers of a dtype, one after the other."""

    dtype: str
    end: int = 0
    parts: list[NDArray[Any]] = field(default_factory=list)

    def add(self, numbers: NDArray[Any], room: int = 0) -> int:
        """Append numbers, and zeros up to a length; return their place."""
        start = self.end
        self.parts.append(numbers.astype(self.dtype, copy=False))
        if len(numbers) < room:
            self.parts.append(np.zeros(room - len(numbers), self.dtype))
        self.end += max(len(numbers), room)
        return start


def pack(
    bound: Bound,  # the routines
    kernels: Sequence[Kernel],  # of these
    tables: Directions,  # the launch tables
    schedule: Schedule,  # the control tables
    ids: Ids,  # by cell and number of its sums, the rows of the table that are added to
    rooms: Rooms | None = None,  # a class whose `full` the schedule is: zeros stand where its batches differ
) -> PackedBatch:
    """Return the integers of a batch as one table, and the offset of each launch's integers in it."""
    wide, runs = _IntegerRuns("int64"), _IntegerRuns("int32")
    head = np.zeros(HEADER + len(bound.types) + SUMMED * len(ids), np.int64)
    wide.add(head)
    runs.add(tables.forward.index, 1)  # so that no other place is 0, which stands for none
    maps: dict[int, int] = {}
    if rooms is not None:
        for k in sorted(wholes_of(schedule) | {k for (k, _), _ in bound.brought["loss"]}):
            maps[k] = runs.add(_NONE, rooms.starts[k][-1] - rooms.starts[k][0])
    records, directions = _levels(schedule, rooms, maps), list[Direction | None]()
    for table, step_records in ((tables.forward, records), (tables.backward, records[::-1])):
        if table is None:
            directions.append(None)
            continue
        launches = wide.add(table.launches.reshape(-1))
        begin, record_size = wide.add(step_records.reshape(-1)), step_records.shape[1]
        plans = {}
        for key, at, width, count, _ in _planned(kernels, table):
            place, targets = _plan(runs, table.index[at : at + count * width], rooms)
            plans[key] = place, len(targets)
        levels = tuple(range(begin, begin + record_size * len(step_records), record_size))
        directions.append(Direction(table, launches, levels, plans))
    sums = {key: _plan(runs, rows.reshape(-1), rooms) for key, rows in ids.items()}
    zeros = {}
    for arena, rows in enumerate(schedule.zero_rows if tables.backward is not None else ()):
        if len(rows) and bound.model.arenas[arena].is_float:
            listed = np.concatenate([[len(rows)], rows]) if rooms is None else _NONE
            zeros[arena] = runs.add(listed, 1 + len(rows)), len(rows)
    wholes: dict[int, int] = {}
    for (k, _), _ in bound.brought["loss"]:
        calls = len(schedule.cells[k].order)
        wholes[k] = wholes.get(k) or wide.add(np.array([0, calls, maps.get(k, 0), calls]))
    first, second = directions
    assert first is not None
    head[INDEX_AT], head[ADDRESSES_AT] = 2 * wide.end, HEADER
    runs.add(np.zeros(runs.end % 2))
    numbers = np.concatenate([*wide.parts, np.concatenate(runs.parts).view(np.int64)])
    return PackedBatch(numbers, first, second, sums, zeros, wholes, maps)


class RoomTable:
    """The packed tables of a class's batches: a batch writes its numbers at their places in a copy of one.

    That is `packed`, given the launch tables of a batch that takes all room; see `pack`.
    """

    def __init__(
        self, bound: Bound, kernels: Sequence[Kernel], tables: Directions, rooms: Rooms, measures: Measures
    ) -> None:
        model, steps = bound.model, rooms.full.steps
        names = fact_names(model.signatures, len(model.arenas))
        index = dict(zip(names, tables.numbers.tolist(), strict=False))
        ids = {
            (k, i): np.zeros((rooms.sizes[k], *model.feeds[k][int(sums.ids.key)].type.shape), np.int64)
            for k, cell in enumerate(model.cells)
            for i, sums in enumerate(cell.sums)
            if bound.training and rooms.sizes[k]
        }
        self.packed = packed = pack(bound, kernels, tables, rooms.full, ids, rooms)
        # where calls and elements are told, and which these are; then plans: see `_planned`
        counts = [(place + CALLS, rooms.totals[k][0]) for k, place in packed.wholes.items()]
        plans, terms = list[tuple[int, ...]](), [0, *[rows.size for rows in ids.values()]]
        for direction, turn in ((packed.forward, 1), (packed.backward, -1)):
            if direction is not None:
                for place, counted in zip(direction.levels, rooms.counted[::turn], strict=True):
                    counts += zip((place + CALLS, *_sequences(len(counted) - 1, place)), counted, strict=True)
                for key, at, width, count, axis in _planned(kernels, direction.table):
                    k, stages, *_ = steps[::turn][key[1]]
                    level = rooms.counted[::turn][key[1]][axis] if is_level(stages) else -1
                    axis_number = rooms.totals[k][axis] - len(rooms.levels)
                    plans.append((direction.plans[key][0], at, width, level, axis_number))
                    terms.append(count * width)
        sums = [
            (place, rooms.totals[k][0] - len(rooms.levels), math.prod(ids[k, i].shape[1:]))
            for (k, i), (place, _) in packed.sums.items()
        ]
        zeros = [(arena, place) for arena, (place, _) in packed.zeros.items()]
        places = RoomPlaces(index, packed.maps, counts, plans, sums, zeros, max(terms))
        self._writer = RoomWriter(measures, rooms, places)

    def filled(self, schedule: Flat, sizes: Ints, ids: Ids) -> tuple[Placed, PackedBatch]:
        """Return a batch numbered anew, and its table; see `RoomWriter.write`, for ids `pack`."""
        numbers = self.packed.numbers.copy()
        begin = int(numbers[INDEX_AT])
        ints, sums = numbers.view(np.int32)[begin:], {}
        listed = [ids[key].reshape(-1) for key in self.packed.sums if key in ids]
        every = np.concatenate(listed) if listed else _NONE
        placed = self._writer.write(schedule, sizes, every, numbers[: begin // 2], ints)
        for key, (place, _) in self.packed.sums.items():
            sums[key] = place, ints[place + 1 : place + 1 + int(ints[place])].astype(np.int64)
        return placed, replace(self.packed, numbers=numbers, sums=sums)


def _plan(runs: _IntegerRuns, targets: Ints, rooms: Rooms | None) -> tuple[int, Ints]:
    """Append a plan, or with rooms zeros; return where it is, and its targets, or all there may be."""
    if rooms is not None:
        return runs.add(_NONE, 2 + 3 * len(targets)), targets
    plan = plan_of(targets)
    return runs.add(plan), plan[1 : 1 + plan[0]].astype(np.int64)


def _levels(schedule: Schedule, rooms: Rooms | None, maps: Mapping[int, int]) -> Ints:
    """Return a record of each step, see `kernel_text`: ``[steps, numbers]``."""
    sequences = max((len(table.segments) for table in schedule.cells), default=0)
    records = np.zeros((len(schedule.steps), LEVEL + ELEMENTS * sequences), np.int64)
    if not schedule.steps:
        return records
    cells, _, starts, stops = zip(*schedule.steps, strict=True)
    cells_of_steps, first, last = np.array([cells, starts, stops], np.int64)
    records[:, 0], records[:, CALLS], records[:, CAPACITY] = first, last - first, last - first
    for k, table in enumerate(schedule.cells):
        if table.segments:
            cell_steps = np.flatnonzero(cells_of_steps == k)
            for at, segments in zip(_sequences(len(table.segments)), table.segments, strict=True):
                records[cell_steps, at] = records[cell_steps, at + 2] = (
                    segments[last[cell_steps]] - segments[first[cell_steps]]
                )
    for row, (k, stages, _, _) in zip(records, schedule.steps, strict=True):
        if rooms is not None and not is_level(stages):
            places = [maps[k] + start - rooms.starts[k][0] for start in rooms.starts[k][:-1]]
            row[[LIVE, *(at + 1 for at in _sequences(len(places) - 1))]] = places
    return records


def _sequences(count: int, start: int = 0) -> range:
    """Return where in a record, which begins at a place, the elements of each sequence are counted."""
    return range(start + LEVEL, start + LEVEL + ELEMENTS * count, ELEMENTS)


def _planned(
    kernels: Sequence[Kernel], table: LaunchTable
) -> Iterator[tuple[tuple[int, int, int], int, int, int, int]]:
    """Yield the sums into rows that are not consecutive, by launch, level and binding.

    Then where in the index these rows are told, how many side by side, how often, and along which axis: 0 for
    calls, 1 and more for the elements of each sequence.
    """
    for number, row in enumerate(table.launches.tolist()):
        routine = kernels[row[0]].routine
        for task in kernels[row[0]].tasks:
            if task.planned < 0 or entry(row, task.planned, Fields.first) >= 0:
                continue
            at, width = entry(row, task.planned, Fields.index), entry(row, task.planned, Fields.width)
            slot = routine.segments.get(task.axis)
            axis = 0 if slot is None else 1 + int(routine.slots[slot].binding.key)
            for level in range(row[1], row[2]):
                low, high = table.bounds[level].tolist()
                if slot is not None:
                    segments = entry(row, slot, Fields.index)
                    low, high = table.index[[segments + low, segments + high]].tolist()
                yield (number, level, task.planned), at + low * width, width, high - low, axis


MAX_BLOCKS = 2048  # of a launch, at most: more rows are done in turns
Where = tuple[int, int]  # a buffer, and bytes from its beginning on


@dataclass(frozen=True, slots=True)
class LaunchStep:
    """A kernel or a product on a level."""

    task: LevelTask  # what is done
    row: Sequence[int]  # the launch's row of the launch table
    blocks: int = 0  # of the kernel
    arguments: tuple[int, ...] = ()  # after the address of the table
    extents: tuple[int, int, int] = (0, 0, 0)  # m, k and count of the product
    # where the product's three matrices begin
    matrices: tuple[Where, Where, Where] = ((0, 0), (0, 0), (0, 0))
    adds: bool = False  # whether the product is added to what is there
    # where in the level's record the rows are counted that a product has for each of its `m`
    counted: int = 0
    gaps: bool = False  # whether rows that nobody wrote lie between those of the product


def steps_of(kernels: Sequence[Kernel], direction: Direction, *, spaced: bool) -> Iterator[LaunchStep]:
    """Yield the steps of a direction; where `spaced`, levels have room for more rows than there are."""
    table = direction.table
    levels, columns = table.bounds.tolist(), table.launches.shape[1]
    for number, row in enumerate(table.launches.tolist()):
        kernel = kernels[row[0]]
        is_due = partial(_is_due, kernel, row, spaced=spaced)
        tasks = [task for task in kernel.tasks if not task.when or any(starmap(is_due, task.when))]
        launch = direction.launches + number * columns
        for level in range(row[1], row[2]):
            rows = _rows(kernel, row, table, *levels[level])
            for task in tasks:
                _, count = rows[task.axis]
                arguments: tuple[int, ...] = (launch, direction.levels[level])
                if task.multiplied is not None:
                    if count or task.multiplied.by == "k":  # a sum over no rows is zero
                        yield _product(kernel, task, row, rows, arguments, spaced=spaced)
                    continue
                if not count and not task.columns:
                    continue
                if task.planned >= 0:
                    if (number, level, task.planned) not in direction.plans:
                        continue
                    plan, count = direction.plans[number, level, task.planned]
                    arguments = (*arguments, plan)
                x, y = task.threads
                blocks = -(-task.columns // x) if task.columns else -(-count // y)
                yield LaunchStep(task, row, max(1, min(MAX_BLOCKS, blocks)), arguments)


BothSteps = tuple[Sequence[LaunchStep], Sequence[LaunchStep]]


def steps_of_both(kernels: Sequence[Kernel], packed: PackedBatch, *, spaced: bool) -> BothSteps:
    """Return the steps forward and backward of a packed table; see `steps_of`."""
    back = packed.backward
    backward = () if back is None else tuple(steps_of(kernels, back, spaced=spaced))
    return tuple(steps_of(kernels, packed.forward, spaced=spaced)), backward


def _rows(
    kernel: Kernel, row: Sequence[int], table: LaunchTable, start: int, stop: int
) -> dict[Axis, tuple[int, int]]:
    """Return the first row of a level along each axis, and how many there are."""
    rows = {UNBATCHED: (0, 1), CALL: (start, stop - start)}
    for axis, slot in kernel.routine.segments.items():
        at = entry(row, slot, Fields.index)
        low, high = int(table.index[at + start]), int(table.index[at + stop])
        rows[axis] = low, high - low
    return rows


def _is_due(kernel: Kernel, row: Sequence[int], condition: str, binding: int, *, spaced: bool) -> bool:
    """Whether a condition for a task holds in a launch, see `kernels.When`."""
    slots = kernel.routine.slots
    match condition:
        case "apart":
            summed = slots[binding].binding.kind == "cotangent" and entry(row, binding, Fields.copies) >= 0
            return entry(row, binding, Fields.first) < 0 and (summed or binding in kernel.setting.copied)
        case "stored":
            computed = binding < len(slots) and entry(row, binding, Fields.stores)
            return entry(row, binding, Fields.first) >= 0 and not computed
        case "sharing":
            return entry(row, binding, Fields.copies) >= 0
    return spaced  # room


def _product(
    kernel: Kernel,
    task: LevelTask,
    row: Sequence[int],
    rows: Mapping[Axis, tuple[int, int]],
    arguments: tuple[int, ...],
    *,
    spaced: bool,
) -> LaunchStep:
    """Return the launch of a product of matrices: extents and addresses at one level."""
    p = task.multiplied
    assert p is not None
    count = rows[task.axis][1]
    extents = ("m", p.m), ("k", p.k), ("count", p.count)
    m, k, products = (extent * count if p.by == by else extent for by, extent in extents)
    a, b, c = (_where(kernel, matrix, row, rows) for matrix in (p.a, p.b, p.c))
    adds, binding = p.adds, kernel.setting.added.get(p.c.slot, -1)
    if binding >= 0 and entry(row, binding, Fields.first) >= 0:
        slot, adds = kernel.routine.slots[p.c.slot], not entry(row, binding, Fields.stores)
        grain = slot.type.nbytes // kernel.setting.widths.get(binding, 1)
        begin = entry(row, binding, Fields.first) * grain + rows[slot.axis][0] * slot.type.nbytes
        c = entry(row, binding, Fields.base), begin
    gaps = spaced and kernel.setting.all_calls
    counted = _counted(kernel, p)
    return LaunchStep(task, row, 0, arguments, (m, k, products), (a, b, c), adds, counted, gaps)


def _counted(kernel: Kernel, product: Multiplied) -> int:
    """Return where in a level's record it is told how often a product has its `m` rows; 0 where it is not."""
    slot = kernel.routine.segments.get(product.axis)
    if product.by != "m" or (slot is None and product.axis is not CALL):
        return 0
    return CALLS if slot is None else LEVEL + ELEMENTS * int(kernel.routine.slots[slot].binding.key)


def _where(kernel: Kernel, matrix: Matrix, row: Sequence[int], rows: Mapping[Axis, tuple[int, int]]) -> Where:
    """Return where a matrix begins: in a buffer, or in the copies of its rows."""
    number, slot = matrix.slot, kernel.routine.slots[matrix.slot]
    kind, nbytes = slot.binding.kind, slot.type.nbytes
    offset = matrix.offset * (nbytes // slot.type.size)
    lower = rows[slot.axis][0] * nbytes
    if kind in ("operand", "cotangent", "store"):
        first = entry(row, number, Fields.first)
        apart = not entry(row, number, Fields.stores) if kind == "store" else first < 0
        if apart:
            return entry(row, number, Fields.spare), offset
        grain = nbytes // kernel.setting.widths.get(number, 1)
        return entry(row, number, Fields.base), first * grain + lower + offset
    return entry(row, number, Fields.base), offset + (lower if kind in ("feed", "kept") else 0)


class StepWalker:
    """Runs the steps of some kernels.

    Args:
        device: where they run.
        functions: the compiled kernels, by name.
        precision: of products, see `MatrixProduct.precision`.
        trials: the kernels on trial that run, see `trials`.
    """

    def __init__(
        self,
        device: Device,
        functions: Mapping[str, Function],
        precision: str = "",
        trials: frozenset[str] = frozenset(),
    ) -> None:
        self._device = device
        self._functions = functions
        self._precision = precision
        self._reach = few_rows.TRIAL if "rows" in trials else few_rows.DEFAULT
        larger = few_rows.TRIAL_NAMES if "rows" in trials else ()
        self._larger = {name: device.kernel(few_rows.TRIAL_TEXT, name) for name in larger}

    def run(self, steps: Sequence[LaunchStep], table: int, addresses: Sequence[int]) -> None:
        """Enqueue steps, given where the packed table lies, and the addresses of the batch's buffers."""
        driver, stream, functions = self._device.driver, self._device.stream, self._functions
        for step in steps:
            task = step.task
            p = task.multiplied
            if p is not None:
                m, k, count = step.extents
                a, b, c = (addresses[buffer] + offset for buffer, offset in step.matrices)
                leads, across = (p.a.lead, p.b.lead, p.c.lead), (p.a.across, p.b.across)
                layout = *leads, *across, step.adds, count, *p.steps
                product = MatrixProduct(p.dtype, m, p.n, k, a, b, c, *layout, self._precision)
                is_told = step.counted and not step.gaps
                calls = table + 8 * (step.arguments[1] + step.counted) if is_told else 0
                if not step.gaps and few_rows.is_small_product(product, self._reach):
                    name, blocks, threads, values = few_rows.launch_of(product, calls, p.m, self._reach)
                    self._device.launch(self._larger.get(name, name), blocks, threads, values)
                elif self._precision == PRECISION and is_tensor_product(product):
                    name, blocks, threads, values = tensor_products.launch_of(product, calls, p.m)
                    self._device.launch(self._device.kernel(TEXTS[name], name), blocks, threads, values)
                else:
                    driver.multiply(product, stream)
            else:
                driver.launch(
                    functions[task.name], step.blocks, task.threads, (table, *step.arguments), stream
                )
