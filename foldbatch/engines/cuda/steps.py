"""From a launch table to steps: every kernel and product of a direction, in order, but for addresses; walked.

Steps follow from a batch's schedule alone. So they are made once a batch, before its memory is known, and
serve again where a batch is run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap

import numpy as np

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.driver import Function, MatrixProduct
from foldbatch.engines.cuda.few_rows import few, launch_of
from foldbatch.engines.cuda.kernel_text import CALLS, ELEMENTS, LEVEL
from foldbatch.engines.cuda.kernels import Kernel, LevelTask
from foldbatch.engines.cuda.matrices import Matrix, Multiplied
from foldbatch.engines.cuda.packing import Direction, PackedBatch
from foldbatch.engines.launch import BASE, COPIES, FIELDS, FIRST, HEAD, INDEX, SPARE, STORES, LaunchTable
from foldbatch.static.op import CALL, UNBATCHED, Axis

BLOCKS = 2048  # of a launch, at most: more rows are done in turns
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


@dataclass(frozen=True, slots=True)
class SlotPlace:
    """What of a slot's address no batch changes: its kind, bytes of a row, and of a row of its arena."""

    kind: str
    axis: Axis
    item: int
    row_bytes: int
    grain: int


def places_of(kernel: Kernel) -> list[SlotPlace]:
    made = []
    for number, slot in enumerate(kernel.routine.slots):
        item = np.dtype(slot.type.dtype).itemsize
        row = slot.type.size * item
        made.append(
            SlotPlace(slot.binding.kind, slot.axis, item, row, row // kernel.setting.widths.get(number, 1))
        )
    return made


def steps_of(kernels: Sequence[Kernel], direction: Direction, *, spaced: bool) -> Iterator[LaunchStep]:
    """Yield the steps of a direction; where `spaced`, levels have room for more rows than there are."""
    table = direction.table
    places = {number: places_of(kernels[number]) for number in np.unique(table.launches[:, 0]).tolist()}
    levels, columns = table.bounds.tolist(), table.launches.shape[1]
    for number, row in enumerate(table.launches.tolist()):
        kernel, slots = kernels[row[0]], places[row[0]]
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
                        yield _product(kernel, task, row, slots, rows, arguments, spaced=spaced)
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
                yield LaunchStep(task, row, max(1, min(BLOCKS, blocks)), arguments)


BothSteps = tuple[Sequence[LaunchStep], Sequence[LaunchStep]]


def steps_of_both(kernels: Sequence[Kernel], packed: PackedBatch, *, spaced: bool) -> BothSteps:
    """Return the steps forward and backward of a packed table; see `steps_of`."""
    back = packed.backward
    backward = () if back is None else tuple(steps_of(kernels, back, spaced=spaced))
    return tuple(steps_of(kernels, packed.forward, spaced=spaced)), backward


def field(row: Sequence[int], binding: int, number: int) -> int:
    return row[HEAD + FIELDS * binding + number]


def _rows(
    kernel: Kernel, row: Sequence[int], table: LaunchTable, start: int, stop: int
) -> dict[Axis, tuple[int, int]]:
    """Return the first row of a level along each axis, and how many there are."""
    rows = {UNBATCHED: (0, 1), CALL: (start, stop - start)}
    for axis, slot in kernel.routine.segments.items():
        at = field(row, slot, INDEX)
        low, high = int(table.index[at + start]), int(table.index[at + stop])
        rows[axis] = low, high - low
    return rows


def _is_due(kernel: Kernel, row: Sequence[int], condition: str, binding: int, *, spaced: bool) -> bool:
    """Whether a condition for a task holds in a launch, see `kernels.When`."""
    slots = kernel.routine.slots
    match condition:
        case "apart":
            summed = slots[binding].binding.kind == "cotangent" and field(row, binding, COPIES) >= 0
            return field(row, binding, FIRST) < 0 and (summed or binding in kernel.setting.copied)
        case "stored":
            computed = binding < len(slots) and field(row, binding, STORES)
            return field(row, binding, FIRST) >= 0 and not computed
    return spaced  # room


def _product(
    kernel: Kernel,
    task: LevelTask,
    row: Sequence[int],
    slots: Sequence[SlotPlace],
    rows: Mapping[Axis, tuple[int, int]],
    arguments: tuple[int, ...],
    *,
    spaced: bool,
) -> LaunchStep:
    p = task.multiplied
    assert p is not None
    count = rows[task.axis][1]
    extents = (
        p.m * count if p.by == "m" else p.m,
        p.k * count if p.by == "k" else p.k,
        p.count * count if p.by == "count" else p.count,
    )
    a, b, c = (_where(matrix, row, slots[matrix.slot], rows) for matrix in (p.a, p.b, p.c))
    adds, binding = p.adds, kernel.setting.added.get(p.c.slot, -1)
    if binding >= 0 and field(row, binding, FIRST) >= 0:
        slot, adds = slots[p.c.slot], not field(row, binding, STORES)
        grain = slot.row_bytes // kernel.setting.widths.get(binding, 1)
        begin = field(row, binding, FIRST) * grain + rows[slot.axis][0] * slot.row_bytes
        c = field(row, binding, BASE), begin
    gaps = spaced and kernel.setting.whole
    return LaunchStep(task, row, 0, arguments, extents, (a, b, c), adds, _counted(kernel, p), gaps)


def _counted(kernel: Kernel, product: Multiplied) -> int:
    """Return where in a level's record it is told how often a product has its `m` rows; 0 where it is not."""
    slot = kernel.routine.segments.get(product.axis)
    if product.by != "m" or (slot is None and product.axis is not CALL):
        return 0
    return CALLS if slot is None else LEVEL + ELEMENTS * int(kernel.routine.slots[slot].binding.key)


def _where(
    matrix: Matrix, row: Sequence[int], slot: SlotPlace, rows: Mapping[Axis, tuple[int, int]]
) -> Where:
    """Return where a matrix begins: in a buffer, or in the copies of its rows."""
    number, kind = matrix.slot, slot.kind
    offset = matrix.offset * slot.item
    lower = rows[slot.axis][0] * slot.row_bytes
    if kind in ("operand", "cotangent", "store"):
        first = field(row, number, FIRST)
        apart = not field(row, number, STORES) if kind == "store" else first < 0
        if apart:
            return field(row, number, SPARE), offset
        return field(row, number, BASE), first * slot.grain + lower + offset
    return field(row, number, BASE), offset + (lower if kind in ("feed", "kept") else 0)


class StepWalker:
    """Runs the steps of some kernels: compiled functions, by name."""

    def __init__(self, device: Device, functions: Mapping[str, Function]) -> None:
        self._device = device
        self._functions = functions

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
                more = *leads, *across, step.adds, count, *p.steps
                product = MatrixProduct(p.dtype, m, p.n, k, a, b, c, *more)
                if step.gaps or not few(product):
                    driver.multiply(product, stream)
                    continue
                calls = table + 8 * (step.arguments[1] + step.counted) if step.counted else 0
                self._device.launch(*launch_of(product, calls, p.m))
            else:
                driver.launch(
                    functions[task.name], step.blocks, task.threads, (table, *step.arguments), stream
                )
