"""The CUDA engine: kernels made once of a model's routines, and batches run by them on a device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from foldbatch.engines.arrays import launched_of
from foldbatch.engines.batch import Batch
from foldbatch.engines.bindings import Bound, bind
from foldbatch.engines.cuda.captured import Captured
from foldbatch.engines.cuda.control import Ops, ops_of
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.due import DueRun
from foldbatch.engines.cuda.kernels import Kernel, kernels_of
from foldbatch.engines.cuda.launching import Calls, Launcher, calls_for
from foldbatch.engines.cuda.matrices import Multiplied
from foldbatch.engines.cuda.memory import DeviceMemory
from foldbatch.engines.cuda.packing import Packed, pack
from foldbatch.engines.cuda.run import CudaRun
from foldbatch.engines.cuda.staging import Staging
from foldbatch.engines.cuda.texts.expressions import TARGET
from foldbatch.engines.cuda.tiles import tile_kernels
from foldbatch.engines.cuda.updates import updates
from foldbatch.engines.cuda.walk import Walker
from foldbatch.engines.cuda.watching import StreamsWatched
from foldbatch.engines.launch import Ints
from foldbatch.engines.launches import Directions, launch_tables
from foldbatch.engines.report import Launched
from foldbatch.model.model import Model
from foldbatch.params import Array
from foldbatch.scheduler.arithmetic import NUMPY, Arithmetic


@dataclass(frozen=True, slots=True)
class Phase:
    """The kernels of one phase of a model.

    Attributes:
        bound: their routines.
        kernels: the kernels, by number.
        walker: runs them.
        constants: arrays of the model, on the device, by buffer.
        ops: what records of a control table can ask for.
    """

    bound: Bound
    kernels: Sequence[Kernel]
    walker: Walker
    constants: dict[int, Any]
    ops: Ops


@dataclass(frozen=True, slots=True)
class Ready:
    """A schedule made ready: for training or for inference.

    Attributes:
        phase: the kernels.
        batch: the schedule, with data.
        tables: what is launched.
        packed: all whole numbers of it.
        calls: the same for a launcher; None where it runs straight.
        launcher: what runs `calls`.
    """

    phase: Phase
    batch: Batch
    tables: Directions
    packed: Packed
    calls: Calls | None = None
    launcher: Launcher | None = None


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
        engine: how batches are launched, one of `foldbatch.engines.engine.LAUNCHES`.
        precision: what the device multiplies float32 in, for the model of cost.
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
        engine: str = "auto",
        precision: str = "fp32",
        debug: bool = False,
    ) -> None:
        self.name = name
        self.model = model
        self.device = device
        self.arithmetic = arithmetic
        self.updates = updates(device)
        self.engine = engine
        self.precision = precision
        self.launchers: dict[
            bool, Launcher
        ] = {}  # for training and inference, where batches do not run straight
        self.debug = debug

    @staticmethod
    def sum_copies(dtype: str) -> Callable[..., None] | None:  # noqa: ARG004 - engines are asked by dtype
        """Return None: rows are summed on the device."""
        return None

    @cached_property
    def training(self) -> Phase:
        """The kernels that train, made when they are first needed."""
        return self._phase(training=True)

    @cached_property
    def inference(self) -> Phase:
        """The kernels that infer, made when they are first needed."""
        return self._phase(training=False)

    def _phase(self, *, training: bool) -> Phase:
        bound = bind(self.model, TARGET, training=training)
        kernels = kernels_of(bound)
        text = "\n".join(kernel.text for kernel in kernels)
        names = [task.name for kernel in kernels for task in kernel.tasks if task.name]
        module = self.device.driver.load(text) if names else None
        functions = {} if module is None else {name: module.function(name) for name in names}
        constants = {
            number: self.device.put(np.asarray(constant.array))
            for constant, number in bound.brought["constant"]
        }
        return Phase(bound, kernels, Walker(self.device, kernels, functions), constants, ops_of(kernels))

    def memory(self) -> Memory:
        """Return memory for batches that run one after the other."""
        return Memory(Staging(self.device))

    def nbytes(self, ready: Ready) -> int:
        """Return the bytes of the buffers that a batch needs, apart from what it brings."""
        types = ready.phase.bound.types
        heights = heights_of(ready.tables).tolist()
        return sum(h * t.nbytes for h, t in zip(heights, types, strict=True) if t is not None)

    def source(self, cells: Collection[int]) -> str:
        """Return the kernels of some cells as text, for people to read."""
        return "\n\n".join(
            f"// {self.model.cells[key.cell].name} {kernel.routine.name}: {_listed(kernel)}\n{kernel.text}"
            for phase in (self.training, self.inference)
            for key, kernel in zip(phase.bound.keys, phase.kernels, strict=True)
            if key.cell in cells
        )

    def ready(self, batch: Batch, *, training: bool) -> Ready:
        """Return a batch's packed table, with the kernels that read it."""
        phase = self.training if training else self.inference
        tables = launch_tables(phase.bound, batch.schedule)
        packed = pack(phase.bound, phase.kernels, tables, batch.schedule, self._ids(batch, training=training))
        ready = Ready(phase, batch, tables, packed)
        launcher = self.launcher(training=training)
        if launcher is None:
            return ready
        return replace(ready, calls=calls_for(phase.ops, ready, launcher), launcher=launcher)

    def launcher(self, *, training: bool) -> Launcher | None:
        """Return what launches batches of a phase, made when first asked for; None: kernel by kernel."""
        if training not in self.launchers and self.engine != "straight":
            phase = self.training if training else self.inference
            tiles = tile_kernels(phase.kernels, self.precision)
            self.launchers[training] = Captured(self.device, phase.kernels, phase.ops, tiles)
        return self.launchers.get(training)

    def _ids(self, batch: Batch, *, training: bool) -> dict[tuple[int, int], Ints]:
        """Return, by cell and number of its sums of rows, ids that examples give."""
        return {
            (k, i): np.asarray(batch.feeds[k][sums.ids.key], np.int64)
            for k, cell in enumerate(self.model.cells)
            for i, sums in enumerate(cell.sums)
            if training and sums.ids.kind == "feed" and len(batch.schedule.cells[k].order)
        }

    def launched(self, ready: Ready) -> list[Launched]:
        """Return the launch table of a batch for a report."""
        return launched_of(ready.phase.bound.keys, ready.tables)

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
            memory.buffers[training].fit(heights_of(ready.tables))
            shared = self.device, self.model, ready, memory.buffers[training], memory.staging
            if ready.calls is None or ready.launcher is None:
                run = CudaRun(*shared)
            else:
                run = DueRun(*shared, ready.calls, ready.launcher)
            run.forward(feeds)
        return run


def heights_of(tables: Directions) -> Ints:
    """Return how many rows each buffer must have, in both directions: ``[buffers] int64``."""
    both = [table.heights for table in (tables.forward, tables.backward) if table is not None]
    heights: Ints = np.maximum.reduce(both)
    return heights


def _listed(kernel: Kernel) -> str:
    """Return what a level runs, in order: names of kernels, and extents of products."""
    names = [task.name if (p := task.multiplied) is None else _shown(p) for task in kernel.tasks]
    return ", ".join(names) or "nothing"


def _shown(p: Multiplied) -> str:
    """Return the extents of a product: rows of one operand, what is summed over, columns of the other."""
    m, k = ("rows" if p.by == by and n == 1 else n for by, n in (("m", p.m), ("k", p.k)))
    return f"a product [{m}, {k}, {p.n}]{' for each row' * (p.by == 'count')}"
