"""The CUDA engine: kernels made once of a model's routines, and batches run by them on a device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from foldbatch.engines.arrays import launched_of
from foldbatch.engines.batch import ScheduledBatch
from foldbatch.engines.bindings import bind, launch_tables
from foldbatch.engines.cuda.captured import Captured, InClass
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.kernels import Kernel, kernels_of
from foldbatch.engines.cuda.matrices import Multiplied
from foldbatch.engines.cuda.memory import DeviceMemory, Staging
from foldbatch.engines.cuda.packing import SUMMED, PackedBatch, pack
from foldbatch.engines.cuda.run import CudaRun, Flag, PhaseKernels, Ready
from foldbatch.engines.cuda.steps import StepWalker, steps_of
from foldbatch.engines.cuda.texts.kernel_text import TARGET
from foldbatch.engines.cuda.updates import updates
from foldbatch.engines.cuda.watching import StreamsWatched
from foldbatch.engines.launch import Ints
from foldbatch.engines.report import Launched
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array
from foldbatch.scheduler.arithmetic import NUMPY, Arithmetic


@dataclass(slots=True)
class Memory:
    """What batches use that run one after the other: buffers by phase, and the way to the device."""

    staging: Staging
    buffers: dict[bool, DeviceMemory] = field(default_factory=dict)


class CudaEngine:
    """An engine that runs batches on a device; see `foldbatch.engines.engine.Engine`.

    Args:
        name: in `ENGINES`.
        model: what it runs.
        device: where.
        launch: how batches are launched, one of `foldbatch.engines.engine.LAUNCHES`.
        debug: whether memory is filled with NaN before each batch.
    """

    one_by_one = False
    splits = 0  # the device computes a whole batch side by side
    helped = False
    target = TARGET

    def __init__(
        self,
        name: str,
        model: Model,
        device: Device,
        arithmetic: Arithmetic = NUMPY,
        *,
        launch: str = "auto",
        debug: bool = False,
    ) -> None:
        self.name = name
        self.model = model
        self.device = device
        self.arithmetic = arithmetic
        self.updates = updates(device)
        self.launch = launch
        self._captured: dict[bool, Captured] = {}  # for training and inference
        self.debug = debug

    @staticmethod
    def sum_copies(dtype: str) -> Callable[..., None] | None:  # noqa: ARG004 - engines are asked by dtype
        """Return None: rows are summed on the device."""
        return None

    @cached_property
    def training(self) -> PhaseKernels:
        """The kernels that train, made when they are first needed."""
        return self._phase(training=True)

    @cached_property
    def inference(self) -> PhaseKernels:
        """The kernels that infer, made when they are first needed."""
        return self._phase(training=False)

    def _phase(self, *, training: bool) -> PhaseKernels:
        bound = bind(self.model, TARGET, training=training)
        kernels = kernels_of(bound)
        text = "\n".join(kernel.text for kernel in kernels)
        names = [task.name for kernel in kernels for task in kernel.tasks if task.name]
        module = self.device.driver.load(text) if names else None
        functions = {} if module is None else {name: module(name) for name in names}
        constants = {
            number: self.device.put(np.asarray(constant.array))
            for constant, number in bound.brought["constant"]
        }
        return PhaseKernels(bound, kernels, StepWalker(self.device, functions), constants)

    def memory(self) -> Memory:
        """Return memory for batches that run one after the other."""
        return Memory(Staging(self.device))

    def nbytes(self, ready: Ready) -> int:
        """Return the bytes of the buffers that a batch needs, apart from what it brings."""
        types = ready.phase.bound.types
        return sum(h * t.nbytes for h, t in zip(ready.heights, types, strict=True) if t is not None)

    def source(self, cells: Collection[int]) -> str:
        """Return the kernels of some cells as text, for people to read."""
        return "\n\n".join(
            f"// {self.model.cells[key.cell].name} {kernel.routine.name}: {_listed(kernel)}\n{kernel.text}"
            for phase in (self.training, self.inference)
            for key, kernel in zip(phase.bound.keys, phase.kernels, strict=True)
            if key.cell in cells
        )

    def ready(self, batch: ScheduledBatch, *, training: bool) -> Ready:
        """Return a batch's packed table, with what is launched for it."""
        phase = self.training if training else self.inference
        bound, ids = phase.bound, self._ids(batch, training=training)
        looks = training and any(
            (k, i) not in ids and len(batch.schedule.cells[k].order)
            for k, cell in enumerate(self.model.cells)
            for i in range(len(cell.sums))
        )
        captured = self.launcher(training=training)
        placed = None
        if captured is not None and not looks and batch.schedule.steps:
            placed = captured.arranged(batch.schedule, ids)
        if placed is not None:
            tables, packed, steps = placed.room.tables, placed.packed, placed.room.steps
        else:
            tables = launch_tables(bound, batch.schedule)
            packed = pack(bound, phase.kernels, tables, batch.schedule, ids)
            forward, backward = (
                () if direction is None else tuple(steps_of(phase.kernels, direction, spaced=False))
                for direction in (packed.forward, packed.backward)
            )
            steps = forward, backward
        rows = {key: self._rows_of(key, placed, packed) for key in packed.sums}
        heights = np.maximum.reduce([t.heights for t in tables[:2] if t is not None])
        ready = Ready(phase, batch, tables, packed, steps, placed, looks, (), (), rows, heights, phase.fixed)
        return replace(ready, cleared=tuple(self._cleared(ready)), flagged=tuple(_flagged(ready)))

    def _rows_of(self, key: tuple[int, int], placed: InClass | None, packed: PackedBatch) -> int:
        """Return how many targets a sum of rows has at most."""
        if placed is None:
            return len(packed.sums[key][1])
        k, i = key
        sums = self.model.cells[k].sums[i]
        ids = placed.rooms.sizes[k] * self.model.feeds[k][int(sums.ids.key)].type.size
        return min(ids, sums.parameter.type.shape[0])

    def _cleared(self, ready: Ready) -> Iterator[tuple[int, int]]:
        """Yield the buffers that begin as zeros, and their bytes."""
        if ready.tables.backward is None:
            return
        brought = ready.phase.bound.brought
        for parameter, number in brought["gradient"]:
            if ready.tables.yields[parameter] > 1:
                yield number, parameter.type.nbytes
        for (k, i), number in brought["input"]:
            yield number, self.model.feeds[k][i].type.nbytes * ready.ranks_room[k]

    def launcher(self, *, training: bool) -> Captured | None:
        """Return what captures batches of a phase; None where they run straight."""
        if self.launch == "straight":
            return None
        if training not in self._captured:
            phase = self.training if training else self.inference
            self._captured[training] = Captured(self.device, phase.bound, phase.kernels)
        return self._captured[training]

    def _ids(self, batch: ScheduledBatch, *, training: bool) -> dict[tuple[int, int], Ints]:
        """Return, by cell and number of its sums of rows, ids that examples give."""
        return {
            (k, i): np.asarray(batch.feeds[k][sums.ids.key], np.int64)
            for k, cell in enumerate(self.model.cells)
            for i, sums in enumerate(cell.sums)
            if training and sums.ids.kind == "feed" and len(batch.schedule.cells[k].order)
        }

    def launched(self, ready: Ready) -> list[Launched]:
        """Return the launch table of a batch for a report."""
        bound = ready.phase.bound
        return launched_of(bound.keys, launch_tables(bound, ready.batch.schedule))

    def wait(self) -> None:
        """Wait until the device has done what was launched; a step that is due is not launched."""
        with self.device.lock:
            self.device.wait()

    def watch(self) -> AbstractContextManager[StreamsWatched]:
        """Return what times each call of the device on its stream."""
        return StreamsWatched(self.device)

    def forward(self, ready: Ready, feeds: Sequence[Sequence[Array]], memory: Memory) -> CudaRun:
        """Compute all values, losses and metrics of a batch; see `Engine.forward`."""
        phase = ready.phase
        training = phase.bound.training
        if training not in memory.buffers:
            made = DeviceMemory(self.device, phase.bound.types, poisoned=self.debug)
            for number, constant in phase.constants.items():
                made.bring(number, constant)
            memory.buffers[training] = made
        with self.device.lock:
            self.device.flush()  # before its buffers are used again, or made anew
            memory.buffers[training].fit(ready.heights)
            captured = self.launcher(training=training)
            run = CudaRun(self.device, self.model, ready, memory.buffers[training], memory.staging, captured)
            run.forward(feeds)
        return run


def _flagged(ready: Ready) -> Iterator[Flag]:
    """Yield the gradients that a batch makes; those of tables last, which only have some rows."""
    bound, packed = ready.phase.bound, ready.packed
    for parameter, number in bound.brought["gradient"]:
        if ready.tables.yields[parameter]:
            yield Flag(parameter, number, parameter.type.size, 0, parameter.type.size)
    for at, (key, (plan, _)) in enumerate(packed.sums.items()):
        parameter = bound.model.cells[key[0]].sums[key[1]].parameter
        width = parameter.type.size // max(1, parameter.type.shape[0])
        yield Flag(parameter, len(bound.types) + SUMMED * at, width, plan, ready.rows_of[key] * width)


def _listed(kernel: Kernel) -> str:
    """Return what a level runs, in order: names of kernels, and extents of products."""
    names = [task.name if (p := task.multiplied) is None else _shown(p) for task in kernel.tasks]
    return ", ".join(names) or "nothing"


def _shown(p: Multiplied) -> str:
    """Return the extents of a product: rows of one operand, what is summed over, columns of the other."""
    m, k = ("rows" if p.by == by and n == 1 else n for by, n in (("m", p.m), ("k", p.k)))
    return f"a product [{m}, {k}, {p.n}]{' for each row' * (p.by == 'count')}"
