"""Walking the steps of a direction: each is enqueued on the compute stream, with its batch's addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.drivers.driver import Function, Product, Span, Touched
from foldbatch.engines.cuda.kernels import Kernel
from foldbatch.engines.cuda.memory import DeviceMemory
from foldbatch.engines.cuda.steps import Step, field
from foldbatch.engines.launch import BASE, SPARE, STORES


class Walker:
    """Runs the steps of some kernels.

    Args:
        device: where.
        kernels: by their numbers in launch tables.
        functions: the compiled kernels, by name.
    """

    def __init__(self, device: Device, kernels: Sequence[Kernel], functions: Mapping[str, Function]) -> None:
        self._device = device
        self._kernels = kernels
        self._functions = functions

    def run(self, steps: Sequence[Step], table: Span, memory: DeviceMemory, status: Span) -> None:
        """Enqueue steps.

        Args:
            steps: what to run.
            table: where the packed table lies.
            memory: the batch's buffers.
            status: what kernels tell of ids out of range.
        """
        driver, stream, functions = self._device.driver, self._device.stream, self._functions
        addresses = memory.addresses.tolist()
        touched = None
        for step in steps:
            task = step.task
            if task.multiplied is not None:
                driver.multiply(_product(step, addresses), stream)
                continue
            if driver.recording:
                touched = partial(self._touched, step, table, memory, status)
            arguments = (table.pointer, *step.arguments)
            driver.launch(functions[task.name], step.blocks, task.threads, arguments, stream, touched)

    def _touched(self, step: Step, table: Span, memory: DeviceMemory, status: Span) -> Touched:
        """Return what memory a step may touch: the buffers of its slots and results, whole."""
        task, row, slots = step.task, step.row, self._kernels[step.row[0]].routine.slots
        reads, writes = set[int](), set[int]()
        for slot in task.reads | task.writes:
            kind = slots[slot].binding.kind
            if kind == "segments":
                continue
            apart = kind == "store" and not field(row, slot, STORES)
            (writes if slot in task.writes else reads).add(field(row, slot, SPARE if apart else BASE))
            if kind in ("operand", "cotangent"):
                reads.add(field(row, slot, BASE))
                (writes if slot in task.writes else reads).add(field(row, slot, SPARE))
        writes |= {field(row, binding, BASE) for binding in task.brings}
        read, written = (
            [Span(int(memory.addresses[b]), int(memory.sizes[b])) for b in sorted(buffers - {-1})]
            for buffers in (reads, writes)
        )
        return Touched([table, *read], [status, *written])


def _product(step: Step, addresses: Sequence[int]) -> Product:
    p = step.task.multiplied
    assert p is not None
    m, k, count = step.extents
    a, b, c = (addresses[buffer] + offset for buffer, offset in step.matrices)
    leads = p.a.lead, p.b.lead, p.c.lead
    return Product(p.dtype, m, p.n, k, a, b, c, *leads, p.a.across, p.b.across, p.adds, count, *p.steps)
