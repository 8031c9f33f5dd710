"""The CUDA engine: kernels made once of a model's routines, and batches run by them on a device, timed."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from foldbatch.engines.arrays import launched_of
from foldbatch.engines.batch import ScheduledBatch
from foldbatch.engines.bindings import bind, launch_tables
from foldbatch.engines.cuda.captured import MAX_STEPS, Arranged, Captured
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.forms import form_of_schedule
from foldbatch.engines.cuda.kernel_text import CALLS, TARGET
from foldbatch.engines.cuda.kernels import Kernel, kernels_of
from foldbatch.engines.cuda.matrices import Multiplied
from foldbatch.engines.cuda.memory import DeviceMemory, Staging
from foldbatch.engines.cuda.mixed import bind_mixed
from foldbatch.engines.cuda.run import CudaRun, PhaseKernels, Ready
from foldbatch.engines.cuda.steps import LaunchStep, PackedBatch, StepWalker, pack, steps_of_both
from foldbatch.engines.cuda.trials import trials_of
from foldbatch.engines.cuda.updates import DeviceUpdates
from foldbatch.engines.engine import Engine, Run
from foldbatch.engines.launch import Ints
from foldbatch.engines.watching import Watch, named
from foldbatch.model.labels import title
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array
from foldbatch.planning.compiled import loops
from foldbatch.planning.facts import flat_of
from foldbatch.planning.table_loops import Tables
from foldbatch.timelines import Span

# What a driver enqueues on a stream; everything else is not timed.
ENQUEUED = frozenset(("launch", "multiply", "copy_in", "copy_out", "copy", "fill", "replay"))
SHOWN = {"replay": "graph"}  # names of calls, where they are no kernel's


class TimingDriver:
    """A driver that asks another one, and marks the time before and after each call on a stream."""

    def __init__(self, driver: Any, rows: dict[int, str], clock: Any, kernels: dict[int, str]) -> None:
        self.driver = driver  # the other one
        self._rows = rows  # the name of each stream's row, by the identity of the stream
        self._clock = clock  # makes the marks, see `Driver.clock`
        self._kernels = kernels  # names, by the identity of the function
        self._kept: set[int] = set()  # streams whose calls are kept for a graph
        # the name and the arguments of the spans that come
        self.label: tuple[str, dict[str, int | str]] | None = None
        # row, name, arguments and both marks of each call
        self.marks: list[tuple[str, str, dict[str, int | str], Any, Any]] = []

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self.driver, name)
        return partial(self._timed, name, asked) if name in ENQUEUED else asked

    def begin_capture(self, stream: Any) -> None:
        """Let calls be kept for a graph; see `Driver.begin_capture`. They do not run now: no time."""
        self._kept.add(id(stream))
        self.driver.begin_capture(stream)

    def end_capture(self, stream: Any) -> Any:
        """Return the graph; see `Driver.end_capture`."""
        self._kept.discard(id(stream))
        return self.driver.end_capture(stream)

    def _timed(self, name: str, asked: Any, *arguments: Any, **options: Any) -> Any:
        """Call a method of the driver, and mark the stream's time before and after, if the stream is watched.

        Args:
            name: the name of the method, which labels its span of time.
            asked: the method.
            arguments: its arguments; the stream is among them, or the option `stream`.
            options: its keyword arguments.

        Returns:
            The result of the method.
        """
        # a stream may be told by a number, as other arguments are: it is the last one but for a function
        values = [argument for argument in arguments if argument is not None and not callable(argument)]
        stream = options.get("stream", values[-1])
        if id(stream) not in self._rows or id(stream) in self._kept:
            return asked(*arguments, **options)
        before = self._clock.mark(stream)
        result = asked(*arguments, **options)
        after = self._clock.mark(stream)
        label, details = self.label or (self._kernels.get(id(arguments[0]), SHOWN.get(name, name)), {})
        if name.startswith("copy"):
            label, details = name, {"bytes": _bytes(arguments)}
        self.marks.append((self._rows[id(stream)], label, details, before, after))
        return result


class StreamsWatched(Watch):
    """Times what a device's streams do; while it is entered, the device has a `TimingDriver` driver.

    Other programs that use the device meanwhile are in the timeline, too.
    """

    note = "of the device, by events on its streams; rows of the host are of the host"

    def __init__(self, device: Device) -> None:
        self._device = device

    def __enter__(self) -> Self:
        device = self._device
        with device.lock:
            device.synchronize()
            self._clock = device.driver.clock(device.stream)
            rows = {id(device.copies): "copies", id(device.stream): "compute"}
            self._timed = TimingDriver(device.driver, rows, self._clock, device.names())
            device.driver = self._timed  # what is not timed is the other one's
        return self

    def __exit__(self, *error: object) -> None:
        with self._device.lock:
            self._device.driver = _without(self._device.driver, self._timed)

    def watched(self, ready: Ready, part: int) -> Ready:
        """Return a batch whose steps have names, cells, levels and rows."""
        walker: Any = _Labelled(ready.phase, ready.arranged.packed, self._timed)
        return replace(ready, phase=replace(ready.phase, walker=walker))

    def spans(self) -> Sequence[Span]:
        """Wait for the device, and return what it did."""
        with self._device.lock:
            self._device.synchronize()
            at = self._clock.seconds
            spans = [
                Span(row, name, at(before), max(0.0, at(after) - at(before)), details)
                for row, name, details, before, after in self._timed.marks
            ]
        return sorted(spans, key=lambda span: (span.row != "copies", span.start))


def _without(driver: Any, timed: TimingDriver) -> Any:
    """Take a timing driver out of a chain of drivers that wrap each other; return the outermost that stays.

    It need not be the outermost: another thread may have begun to watch meanwhile.

    Args:
        driver: the outermost driver.
        timed: the one to take out.
    """
    if driver is timed:
        return timed.driver
    driver.driver = _without(driver.driver, timed)
    return driver


class _Labelled:
    """A walker that names each step before it enqueues it; see `foldbatch.engines.cuda.steps.StepWalker`."""

    def __init__(self, phase: PhaseKernels, packed: PackedBatch, timed: TimingDriver) -> None:
        self._phase = phase
        self._numbers = packed.numbers
        self._timed = timed
        self._levels: dict[int, int] = {}  # by the place of its record
        for direction in (packed.forward, packed.backward):
            if direction is not None:
                self._levels |= {place: level for level, place in enumerate(direction.levels)}

    def run(self, steps: Sequence[LaunchStep], table: int, addresses: Sequence[int]) -> None:
        """Run steps one by one, each with the name of its kernel and cell for the timeline."""
        for step in steps:
            at = step.arguments[1]
            name, cell = named(self._phase.bound, step.row[0])
            product = step.task.multiplied
            rows = int(self._numbers[at + CALLS])
            level = self._levels[at] - step.row[1]
            arguments: dict[str, int | str] = {"cell": cell, "level": level, "rows": rows}
            if product is not None:
                arguments["product"] = _extents(product, step)
                name = f"{name} product"
            self._timed.label = name, arguments
            try:
                self._phase.walker.run([step], table, addresses)
            finally:
                self._timed.label = None


def _extents(product: Multiplied, step: LaunchStep) -> str:
    m, k, count = step.extents
    return f"[{m}, {k}] x [{k}, {product.n}]" + (f", {count} times" if count != 1 else "")


def _bytes(arguments: Sequence[Any]) -> int:
    """Return how many bytes a copy moves: those of the host's array, or the third argument."""
    arrays = [argument.nbytes for argument in arguments if hasattr(argument, "nbytes")]
    return int(arrays[0] if arrays else arguments[2])


@dataclass(slots=True)
class Memory:
    """The memory of batches that run one after the other: buffers by phase, and the way to the device."""

    staging: Staging
    buffers: dict[bool, DeviceMemory] = field(default_factory=dict)


class CudaEngine(Engine):
    """An engine that runs batches on a device, each whole: it computes them side by side."""

    target = TARGET

    def __init__(
        self,
        name: str,
        model: Model,
        device: Device,
        *,
        launch: str = "auto",
        debug: bool = False,
        precision: str = "",
        trials: frozenset[str] | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.device = device
        self.gpu = device.driver.identity
        loops()  # so that no batch waits for them
        self.updates = DeviceUpdates(device)
        self.launch = launch  # how batches are, one of `foldbatch.engines.engine.LAUNCHES`
        self._captured: dict[bool, Captured] = {}  # for training and inference
        self.debug = debug  # whether memory is filled with NaN before each batch
        # of products, where the device does not decide it
        self._precision = "fp32" if precision == "mixed" else precision
        self._is_mixed = precision == "mixed"  # whether arenas hold float32 as bfloat16
        # of `TRIALS`; by default those that the environment names
        self.trials = trials_of(os.environ) if trials is None else trials

    @cached_property
    def training(self) -> PhaseKernels:
        """The kernels that train, made when they are first needed."""
        return self._phase(training=True)

    @cached_property
    def inference(self) -> PhaseKernels:
        """The kernels that infer, made when they are first needed."""
        return self._phase(training=False)

    def _phase(self, *, training: bool) -> PhaseKernels:
        """Compile and return the kernels of a phase, and copy its constants to the device.

        Each call compiles anew; `training` and `inference` keep the result.
        """
        make = bind_mixed if self._is_mixed else partial(bind, target=TARGET)
        bound = make(self.model, training=training)
        kernels = kernels_of(bound, self.trials)
        text = "\n".join(kernel.text for kernel in kernels)
        names = [task.name for kernel in kernels for task in kernel.tasks if task.name]
        module = self.device.driver.load(text) if names else None
        functions = {} if module is None else {name: module(name) for name in names}
        constants = {
            number: self.device.put(np.asarray(constant.array))
            for constant, number in bound.brought["constant"]
        }
        walker = StepWalker(self.device, functions, self._precision, self.trials)
        return PhaseKernels(bound, kernels, walker, constants)

    def memory(self) -> Memory:
        return Memory(Staging(self.device))

    def nbytes(self, ready: Ready) -> int:
        """Return the bytes of the buffers that a batch needs, apart from what it brings."""
        heights = ready.arranged.tables.forward.heights
        sizes = zip(heights, ready.phase.bound.types, strict=True)
        return sum(height * type_.nbytes for height, type_ in sizes if type_ is not None)

    def source(self, cells: Collection[int]) -> str:
        """Return the texts of the kernels of some cells."""
        model_cells = self.model.cells
        return "\n\n".join(
            f"// {title(model_cells[key.cell].name)} {kernel.routine.name}: {_listed(kernel)}\n{kernel.text}"
            for phase in (self.training, self.inference)
            for key, kernel in zip(phase.bound.keys, phase.kernels, strict=True)
            if key.cell in cells
        )

    def ready(self, batch: ScheduledBatch, *, training: bool) -> Ready:
        """Return a batch ready to be launched: in a capacity class if it fits into one, else straight."""
        phase = self.training if training else self.inference
        bound, ids = phase.bound, self._ids(batch, training=training)
        schedule = flat_of(batch.schedule)
        steps = schedule.header[Tables.steps]
        looks = training and any(
            (k, i) not in ids and len(schedule.orders[k])
            for k, cell in enumerate(self.model.cells)
            for i in range(len(cell.sums))
        )
        captured, arranged = self.launcher(training=training), None
        fits = captured is not None and not looks and 0 < steps <= MAX_STEPS
        if captured is not None and not looks and steps:
            arranged = captured.arranged(schedule, ids)
        waits = fits and arranged is None
        if arranged is None:
            tables = launch_tables(bound, batch.schedule)
            packed = pack(bound, phase.kernels, tables, batch.schedule, ids)
            form = form_of_schedule(bound, tables, packed, batch.schedule)
            arranged = Arranged(tables, packed, steps_of_both(phase.kernels, packed, spaced=False), form)
        return Ready(phase, batch, arranged, looks, waits, 0 if captured is None else captured.learned)

    def _renew(self, ready: Ready) -> None:
        """Make a batch ready anew if it is in no class, and others have been learned since.

        A batch that was planned is made ready once and may come again and again: each time counts as one
        batch more from which classes are to be learned.
        """
        training = ready.phase.bound.training
        captured = self.launcher(training=training)
        if captured is None or not ready.waits:
            return
        if ready.ran:
            captured.came_again()
        if ready.learned < captured.learned:
            renewed = self.ready(ready.batch, training=training)
            vars(ready).clear()
            vars(ready).update(vars(renewed))
        ready.ran = True

    def launcher(self, *, training: bool) -> Captured | None:
        """Return the object that captures batches of a phase; None if they run straight."""
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
            if training and sums.ids.kind == "feed" and len(batch.schedule.orders[k])
        }

    def launched(self, ready: Ready) -> tuple[int, int]:
        bound = ready.phase.bound
        return launched_of(bound, launch_tables(bound, ready.batch.schedule))

    def expect(self, run: Run, numbers: Sequence[int]) -> bool:
        """Let values come to the host with the status of a run, see `Engine.expect`."""
        if not isinstance(run, CudaRun) or run.device.due is not run:
            return False
        run.expect(numbers)
        return True

    def wait(self) -> None:
        """Wait until the device has done what was launched; a step that is due is not launched."""
        with self.device.lock:
            self.device.wait()

    def watch(self) -> AbstractContextManager[StreamsWatched]:
        return StreamsWatched(self.device)

    def limit_memory(self, memory: Memory, nbytes: int, *, training: bool) -> None:
        with self.device.lock:
            self.device.flush()  # what waits may read the buffers that go
            memory.buffers.pop(not training, None)
            self._buffers(memory, training=training).limit = nbytes

    def _buffers(self, memory: Memory, *, training: bool) -> DeviceMemory:
        """Return the buffers of a phase, made when they are first needed."""
        if training not in memory.buffers:
            phase = self.training if training else self.inference
            buffers = DeviceMemory(self.device, phase.bound.types, poisoned=self.debug)
            for number, constant in phase.constants.items():
                buffers.bring(number, constant)
            memory.buffers[training] = buffers
        return memory.buffers[training]

    def forward(self, ready: Ready, feeds: Sequence[Sequence[Array]], memory: Memory) -> CudaRun:
        """Begin a batch: its launches wait until a result is read or an update is made."""
        training = ready.phase.bound.training
        self._buffers(memory, training=training)
        with self.device.lock:
            self.device.follow()
            self._renew(ready)
            self.device.flush()  # before its buffers are used again, or made anew
            memory.buffers[training].fit(ready.arranged.tables.forward.heights)
            captured = self.launcher(training=training)
            run = CudaRun(self.device, self.model, ready, memory.buffers[training], memory.staging, captured)
            run.forward(feeds)
        return run


def _listed(kernel: Kernel) -> str:
    """Return the work of a level in order: names of kernels, and extents of products."""
    names = [task.name if (p := task.multiplied) is None else _shown(p) for task in kernel.tasks]
    return ", ".join(names) or "nothing"


def _shown(p: Multiplied) -> str:
    """Return the extents of a product: rows of one operand, what is summed over, columns of the other."""
    m, k = ("rows" if p.by == by and n == 1 else n for by, n in (("m", p.m), ("k", p.k)))
    return f"a product [{m}, {k}, {p.n}]{' for each row' * (p.by == 'count')}"
