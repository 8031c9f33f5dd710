"""Walking a launch table: what the kernels of each launch and level enqueue on the compute stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.driver import Function, Product, Span, Touched
from foldbatch.engines.cuda.kernels import Kernel, Task
from foldbatch.engines.cuda.matrices import Matrix, Multiplied
from foldbatch.engines.cuda.memory import DeviceMemory
from foldbatch.engines.cuda.packing import Direction
from foldbatch.engines.launch import BASE, COPIES, FIELDS, FIRST, HEAD, INDEX, SPARE, STORES, LaunchTable
from foldbatch.static.op import CALL, Axis

BLOCKS = 2048  # of a launch, at most: more rows are done in turns


class Walker:
    """Runs launch tables of some kernels.

    Args:
        device: where.
        kernels: by their numbers in launch tables.
        functions: the compiled kernels, by name.
    """

    def __init__(self, device: Device, kernels: Sequence[Kernel], functions: Mapping[str, Function]) -> None:
        self._device = device
        self._kernels = kernels
        self._functions = functions

    def run(self, direction: Direction, table: Span, memory: DeviceMemory) -> None:
        """Enqueue a direction of a batch.

        Args:
            direction: what to run.
            table: where the packed table lies.
            memory: the batch's buffers.
        """
        launches = direction.table
        columns = launches.launches.shape[1]
        bounds = launches.bounds.tolist()
        addresses = memory.addresses.tolist()
        for number, row in enumerate(launches.launches.tolist()):
            kernel = self._kernels[row[0]]
            launch = direction.launches + number * columns
            for level in range(row[1], row[2]):
                start, stop = bounds[level]
                here = _Level(kernel, row, launches, start, stop, addresses)
                for task in kernel.tasks:
                    self._task(task, here, (number, level), (table, launch), direction, memory)

    def _task(
        self,
        task: Task,
        here: _Level,
        place: tuple[int, int],
        told: tuple[Span, int],
        direction: Direction,
        memory: DeviceMemory,
    ) -> None:
        driver, stream = self._device.driver, self._device.stream
        _, rows = here.rows(task.axis)
        if task.multiplied is not None:
            if rows or task.multiplied.by == "k":  # a sum over no rows is zero
                driver.multiply(here.product(task.multiplied, rows), stream)
            return
        if not rows and not task.columns:
            return
        if task.taken and not any(here.is_apart(slot) for slot in task.taken):
            return
        x, y = task.threads
        table, launch = told
        arguments = [table.pointer, launch, direction.bounds + 2 * place[1]]
        if task.planned >= 0:
            plan = direction.plans.get((*place, task.planned))
            if plan is None:
                return
            arguments.append(plan[0])
            rows = plan[1]
        blocks = -(-task.columns // x) if task.columns else -(-rows // y)
        touched = None
        if driver.recording:
            touched = partial(here.touched, task, memory, table)
        driver.launch(
            self._functions[task.name], min(BLOCKS, max(1, blocks)), task.threads, arguments, stream, touched
        )


class _Level:
    """A level of a launch, with what the host must know of its slots."""

    __slots__ = ("addresses", "kernel", "row", "start", "stop", "table")

    def __init__(
        self,
        kernel: Kernel,
        row: Sequence[int],
        table: LaunchTable,
        start: int,
        stop: int,
        addresses: Sequence[int],
    ) -> None:
        self.kernel = kernel
        self.row = row
        self.table = table
        self.start = start
        self.stop = stop
        self.addresses = addresses

    def field(self, binding: int, number: int) -> int:
        """Return a field of a binding."""
        return self.row[HEAD + FIELDS * binding + number]

    def rows(self, axis: Axis) -> tuple[int, int]:
        """Return the first row along an axis, and how many there are."""
        if axis.rank == 0:
            return 0, 1
        if axis is CALL:
            return self.start, self.stop - self.start
        at = self.field(self.kernel.routine.segments[axis], INDEX)
        low, high = self.table.index[at + self.start], self.table.index[at + self.stop]
        return int(low), int(high - low)

    def is_apart(self, slot: int) -> bool:
        """Whether a slot's rows must be copied together, or summed."""
        binding = self.kernel.routine.slots[slot].binding.kind
        copied = slot in self.kernel.setting.copied
        summed = binding == "cotangent" and self.field(slot, COPIES) >= 0
        return self.field(slot, FIRST) < 0 and (copied or summed)

    def address(self, number: int) -> int:
        """Return where the level's row 0 of a slot is, or of the copies of its rows."""
        slot = self.kernel.routine.slots[number]
        kind, first = slot.binding.kind, self.field(number, FIRST)
        lower, _ = self.rows(slot.axis)
        item = np.dtype(slot.type.dtype).itemsize
        size = slot.type.size * item
        apart = (kind in ("operand", "cotangent") and first < 0) or (
            kind == "store" and not self.field(number, STORES)
        )
        if apart:
            return self.addresses[self.field(number, SPARE)]
        base = self.addresses[self.field(number, BASE)]
        if kind in ("operand", "cotangent", "store"):
            return base + first * (size // self.kernel.setting.widths.get(number, 1)) + lower * size
        return base + lower * size if kind in ("feed", "kept") and slot.axis.rank else base

    def product(self, product: Multiplied, rows: int) -> Product:
        """Return a product of the level."""
        p = product
        extents = {"m": p.m, "k": p.k, "count": p.count}
        extents[p.by] *= rows
        return Product(
            p.dtype,
            extents["m"],
            p.n,
            extents["k"],
            self._matrix(p.a),
            self._matrix(p.b),
            self._matrix(p.c),
            p.a.lead,
            p.b.lead,
            p.c.lead,
            p.a.across,
            p.b.across,
            p.adds,
            extents["count"],
            *p.steps,
        )

    def _matrix(self, matrix: Matrix) -> int:
        item = np.dtype(self.kernel.routine.slots[matrix.slot].type.dtype).itemsize
        return self.address(matrix.slot) + matrix.offset * item

    def touched(self, task: Task, memory: DeviceMemory, table: Span) -> Touched:
        """Return what memory a task may touch: the buffers of its slots and results, whole."""
        slots = self.kernel.routine.slots
        reads, writes = set[int](), set[int]()
        for slot in task.reads | task.writes:
            kind = slots[slot].binding.kind
            if kind == "segments":
                continue
            apart = kind == "store" and not self.field(slot, STORES)
            base = self.field(slot, SPARE if apart else BASE)
            if kind in ("operand", "cotangent"):
                reads.add(base)
                spare = self.field(slot, SPARE)
                (writes if slot in task.writes else reads).add(spare)
            else:
                (writes if slot in task.writes else reads).add(base)
        writes |= {self.field(binding, BASE) for binding in task.brings}
        spans = [
            [Span(int(memory.addresses[b]), int(memory.sizes[b])) for b in sorted(buffers - {-1})]
            for buffers in (reads, writes)
        ]
        return Touched([table, *spans[0]], spans[1])
