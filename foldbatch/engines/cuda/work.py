"""What calls of a batch's step do: bytes and operations, read off their steps; no rates, no clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from foldbatch.engines.cuda.control import THREADS, Call, Ops
from foldbatch.engines.cuda.kernels import Kernel, Task
from foldbatch.engines.cuda.steps import Step, field
from foldbatch.engines.cuda.texts.kernel_text import INDEX_AT
from foldbatch.engines.launch import INDEX, Ints
from foldbatch.static.op import CALL, Axis

SMALL = 65536  # bytes of a table that a kernel may read whole, whatever it writes


@dataclass(frozen=True, slots=True)
class Work:
    """What a call does.

    Attributes:
        name: of its kernel; of a product that of its tile.
        where: the stage and the level, for people: ``forward_step 3 of cell 1``; empty for what runs around.
        rows: how many rows it works on.
        blocks: that can work side by side; 0 for a product.
        nbytes: that it reads and writes, each once.
        product: rows of the result, what is added up, columns of the result, and how many such products; all
            are 0 for a kernel.
        dtype: of the product.
    """

    name: str
    where: str = ""
    rows: int = 1
    blocks: int = 0
    nbytes: int = 0
    product: tuple[int, int, int, int] = (0, 0, 0, 0)
    dtype: str = "float32"

    @property
    def operations(self) -> int:
        """Multiplications and additions of a product; 0 for a kernel."""
        return 2 * prod(self.product)

    @property
    def is_product(self) -> bool:
        """Whether it is a product, of a library or of a tile."""
        return self.product[2] > 0


def operations_of(call: Call) -> int:
    """Return the multiplications and additions of a call that is a product; 0 for others."""
    if call.step is None or (p := call.step.task.multiplied) is None:
        return 0
    return 2 * prod(call.step.extents) * p.n


def works_of(ops: Ops, calls: Sequence[Call], kernels: Sequence[Kernel], numbers: Ints) -> list[Work]:
    """Return what each call does.

    Args:
        ops: the ops of the phase.
        calls: of a batch.
        kernels: of the phase.
        numbers: the batch's packed table, ``[*] int64``, where bounds and index arrays stand.
    """
    names = iter(_levels(calls, kernels))
    return [
        _around(ops.ops[call.op].name, call)
        if call.step is None
        else _step(ops.ops[call.op].name, call.step, kernels[call.step.row[0]], numbers, next(names))
        for call in calls
    ]


def planned_of(works: Sequence[Work]) -> int:
    """Return how many calls of cells a batch has, about: the rows of each level forward, once."""
    return sum({work.where: work.rows for work in works if work.where.startswith("forward")}.values())


def _levels(calls: Sequence[Call], kernels: Sequence[Kernel]) -> Iterator[str]:
    """Yield where each step stands: its routine, and the level in the order of running."""
    order: dict[int, dict[int, int]] = {}
    for call in calls:
        if call.step is not None:
            number, bounds = call.step.row[0], call.step.arguments[1]
            level = order.setdefault(number, {}).setdefault(bounds, len(order[number]))
            kernel = kernels[number]
            yield f"{kernel.routine.name} {level} of cell {kernel.setting.cell}"


def _step(name: str, step: Step, kernel: Kernel, numbers: Ints, where: str) -> Work:
    task, rows = step.task, _rows(step, kernel, numbers)
    count = rows[task.axis]
    if (p := task.multiplied) is None:
        return Work(name, where, count, step.blocks, _kernel_bytes(task, kernel, rows))
    m, k, many = step.extents
    item = np.dtype(p.dtype).itemsize
    same = 1 if p.steps[1] == 0 else many  # products side by side often share the second operand
    moved = item * (many * m * k + same * k * p.n + (2 if p.adds else 1) * many * m * p.n)
    return Work(name, where, count, 0, moved, (m, k, p.n, many), p.dtype)


def _rows(step: Step, kernel: Kernel, numbers: Ints) -> Mapping[Axis, int]:
    """Return how many rows a step's level has along each axis."""
    start, stop = (int(n) for n in numbers[step.arguments[1] : step.arguments[1] + 2])
    rows = {axis: 1 for slot in kernel.routine.slots if (axis := slot.axis).rank == 0}
    rows |= {step.task.axis: 1, CALL: stop - start}
    for axis, slot in kernel.routine.segments.items():
        at = int(numbers[INDEX_AT]) + field(step.row, slot, INDEX)
        rows[axis] = int(numbers[at + stop] - numbers[at + start])
    return rows


def _kernel_bytes(task: Task, kernel: Kernel, rows: Mapping[Axis, int]) -> int:
    """Return what a kernel reads and writes: whole rows, but of a large table no more than it writes."""
    slots, results = kernel.routine.slots, kernel.routine.results

    def nbytes(axis: Axis, slot: int, size: int) -> int:
        return rows[axis] * size * np.dtype(slots[slot].type.dtype).itemsize

    written = sum(nbytes(slots[slot].axis, slot, slots[slot].type.size) for slot in task.writes)
    for number in task.brings:
        place = results[number - len(slots)].place if number >= len(slots) else None
        slot, axis = (number, slots[number].axis) if place is None else (place.slot, place.axis)
        written += nbytes(axis, slot, slots[number].type.size if place is None else prod(place.shape))
    moved = written
    for slot in task.reads:
        whole = nbytes(slots[slot].axis, slot, slots[slot].type.size)
        moved += whole if slots[slot].axis.rank else min(whole, max(written, SMALL))
    return moved


def _around(name: str, call: Call) -> Work:
    """Return what a call does that is no step: it moves numbers of four bytes, or somewhat more."""
    kind, arguments = name.split("_at", maxsplit=1)[0], call.arguments
    numbers = {
        "fill": lambda: arguments[1],
        "zero": lambda: arguments[2] * arguments[3],
        "total": lambda: arguments[1],
        "flag": lambda: arguments[1],
        "note": lambda: THREADS,
        "copy": lambda: 4 * arguments[1],
    }.get(kind, lambda: 3 * THREADS * call.blocks)()
    return Work(name, rows=1, blocks=call.blocks, nbytes=4 * numbers)
