"""Engines of arrays: what those have in common that run kernels over whole arenas, by a launch table."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from foldbatch.engines.batch import ScheduledBatch, arenas_of, by_arena, fetched, kept_rows
from foldbatch.engines.bindings import Bound, Directions, bind
from foldbatch.engines.engine import DEFAULTS, Cotangents, EngineOf, EngineSettings
from foldbatch.engines.launch import HEAD, Ints, LaunchTable, OutOfRangeError
from foldbatch.engines.sums import sum_rows, total
from foldbatch.engines.watching import Watch, named
from foldbatch.loops.cpython import address_of
from foldbatch.model.model import Model
from foldbatch.model.small_batches import Round, SmallBatch, SmallRun
from foldbatch.params.parameters import Array, Gradient, Parameter, Updates
from foldbatch.planning.compiled import loops
from foldbatch.planning.facts import Fact
from foldbatch.planning.policies import COMPILED, Costs
from foldbatch.scheduler.schedule import Index, Schedule
from foldbatch.static.op import CALL
from foldbatch.static.routines import Target
from foldbatch.static.statements import Binding
from foldbatch.system.lines import aligned
from foldbatch.system.processes import no_garbage
from foldbatch.timelines import Span
from foldbatch.types import TensorType


class BatchMemory:
    """Buffers that outlive a batch: arenas, kept values and scratch, grown when a batch needs more.

    They are arrays ``[height, *shape]`` by number, of these types; None for those that are not memory of ours
    but arrays that a batch brings: parameters, data, results. Contents are undefined until written. Growth is
    geometric, so a run settles after a few batches. It serves one batch at a time.

    Where `poisoned`, new float arrays, and all of them before each batch, are filled with NaN, so that a test
    sees a read of memory that no kernel wrote.
    """

    def __init__(self, types: Sequence[TensorType | None], *, poisoned: bool = False) -> None:
        self._types = types
        self._poisoned = poisoned
        self.helped = False  # whether another core may help with a batch
        self.limit: int | None = (
            None  # bytes of all buffers, where it may not grow ahead of what a batch needs
        )
        self._owned = np.array([type_ is not None for type_ in types], bool)
        # ``[buffers] int64``: how many rows each has
        self.capacity = np.where(self._owned, 0, np.iinfo(np.int64).max)
        self.arrays: list[Any] = [None] * len(types)  # the buffers
        self.sources: list[Array | None] = [None] * len(
            types
        )  # of those of another shape of an array, that array
        self.addresses = np.zeros(len(types), np.int64)  # ``[buffers] int64``: where each begins
        for number, type_ in enumerate(types):
            if type_ is not None:
                self._allocate(number, type_, 1)

    def fit(self, heights: Ints) -> None:
        """Make every buffer as high as a batch needs it: ``heights: [buffers]``."""
        if self.limit is not None:
            self._shrink(heights, self.limit)
        for number in (heights > self.capacity).nonzero()[0].tolist():
            type_ = self._types[number]
            assert type_ is not None
            height = int(self.capacity[number])
            ahead = height + height // 4 if self.limit is None else 0
            self._allocate(number, type_, max(int(heights[number]), ahead))
        if self._poisoned:
            for number in np.flatnonzero(self._owned).tolist():
                _poison(self.arrays[number])

    def _shrink(self, heights: Ints, limit: int) -> None:
        """Free what is higher than a batch needs, if all buffers would take more bytes than the limit."""
        owned = [(n, type_) for n, type_ in enumerate(self._types) if type_ is not None]
        needed = sum(max(int(heights[n]), int(self.capacity[n])) * type_.nbytes for n, type_ in owned)
        if needed <= limit:
            return
        for number, type_ in owned:
            if self.capacity[number] != max(1, int(heights[number])):
                self._allocate(number, type_, 1)  # before others grow

    def bring(self, number: int, array: Array) -> None:
        """Let an array that a batch brings be a buffer: ``[height, *shape]``, without gaps."""
        if self.arrays[number] is not array:
            address = address_of(array)
            self.arrays[number], self.addresses[number] = array, address  # in one line: nothing interrupts it

    def _allocate(self, number: int, type_: TensorType, height: int) -> None:
        array: Array = aligned((height, *type_.shape), type_.dtype)
        if self._poisoned:
            _poison(array)
        self.bring(number, array)
        self.capacity[number] = height

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array, owned in zip(self.arrays, self._owned, strict=True) if owned)


def _poison(array: Array) -> None:
    if array.dtype.kind == "f":
        array.fill(np.nan)


# Runs the launches of a table; the buffers are those of the memory.
Walk = Callable[[LaunchTable, BatchMemory], None]


# a batch of more examples or values runs faster by a plan, which takes products of words out of recursions
SMALL_BATCH_EXAMPLES = 128
SMALL_BATCH_VALUES = 2_048


class SmallRunner(Protocol):
    """Runs the small batches and rounds of a phase of a model."""

    def run(self, notes: SmallBatch | Round, memory: BatchMemory) -> SmallRun | None:
        """Run a small batch or a round; see `Engine.run_small`."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of one phase of a model."""

    bound: Bound  # their routines
    walk: Walk  # runs a launch table
    sources: Callable[[], list[str]]  # returns the text of each, in the order of `bound`
    tables: Callable[[Schedule], Directions]  # returns the launch tables of a batch
    small: SmallRunner | None = None  # runs small batches and rounds; None where the engine cannot


class ReadyBatch(NamedTuple):
    """A schedule made ready for an engine: for training or for inference."""

    kernels: Kernels
    batch: ScheduledBatch
    tables: Directions


class ArrayEngine(EngineOf[dict[bool, BatchMemory], ReadyBatch]):
    """An engine whose kernels run over whole arenas."""

    updates: Updates | None

    def __init__(
        self,
        name: str,  # in `ENGINES`
        model: Model,  # what it runs
        target: Target,  # what its kernels can do
        make: Callable[[Bound], Kernels],  # makes the kernels of bound routines
        costs: Costs = COMPILED,  # what its steps cost, and planning them
        updates: Updates | None = None,  # compiled steps of optimizers
        # sums rows of equal id, see `sums`
        sum_copies: Callable[[str], Callable[..., None] | None] = lambda dtype: None,
        *,
        splits: int = 1,  # how many times the usual calls are worth a part of a batch
        settings: EngineSettings = DEFAULTS,
    ) -> None:
        self.name = name
        self.splits = splits
        self.model = model
        self.target = target
        self.costs = costs
        loops()  # so that no batch waits for them
        self.updates = updates
        self._sum_copies = sum_copies
        self.settings = settings
        self.debug, self.helped_small = settings.debug, settings.helped
        self._make = make

    def sum_copies(self, dtype: str, /) -> Callable[..., None] | None:
        return self._sum_copies(dtype)

    @cached_property
    def training(self) -> Kernels:
        """The kernels that train, made when they are first needed."""
        return self._make_kernels(training=True)

    @cached_property
    def inference(self) -> Kernels:
        """The kernels that infer, made when they are first needed."""
        return self._make_kernels(training=False)

    def _make_kernels(self, *, training: bool) -> Kernels:
        with no_garbage():  # kernels are many objects, and none of them garbage
            return self._make(bind(self.model, self.target, training=training))

    def memory(self) -> dict[bool, BatchMemory]:
        """Return memory for batches that run one after the other: by phase, made when first needed."""
        return {}

    def nbytes(self, ready: ReadyBatch) -> int:
        """Return the bytes of the buffers that a batch needs, apart from what it brings."""
        tables = [table for table in (ready.tables.forward, ready.tables.backward) if table is not None]
        heights = np.maximum.reduce([table.heights for table in tables]).tolist()
        types = ready.kernels.bound.types
        return sum(h * t.nbytes for h, t in zip(heights, types, strict=True) if t is not None)

    def source(self, cells: Collection[int]) -> str:
        """Return the texts of the kernels of some cells, of training and then of inference."""
        phases = self.training, self.inference
        texts = [
            (key.cell, text)
            for kernels in phases
            for key, text in zip(kernels.bound.keys, kernels.sources(), strict=True)
        ]
        return "\n\n".join(text for cell, text in texts if cell in cells)

    def ready(self, batch: ScheduledBatch, *, training: bool) -> ReadyBatch:
        kernels = self.training if training else self.inference
        return ReadyBatch(kernels, batch, kernels.tables(batch.schedule))

    def launched(self, ready: ReadyBatch) -> tuple[int, int]:
        return launched_of(ready.kernels.bound, ready.tables)

    def watch(self) -> AbstractContextManager[LevelsWatched]:
        return nullcontext(LevelsWatched())

    def forward(
        self, ready: ReadyBatch, feeds: Sequence[Sequence[Array]], memory: dict[bool, BatchMemory]
    ) -> ArrayRun:
        """Run a batch forward in the memory of its phase; the run may be run backward afterwards."""
        run = ArrayRun(self, ready, self.phase_memory(ready.kernels.bound, memory))
        run.memory.helped = self.helped
        run.forward(feeds)
        return run

    def run_small(
        self,
        memory: dict[bool, BatchMemory],
        notes: SmallBatch | Round,
        asides: Collection[str] = (),
        *,
        training: bool = False,
    ) -> SmallRun | None:
        """Run a small batch or a round at once, if it is small enough and asks for values alone."""
        is_round = isinstance(notes, Round) and not notes.is_batch
        if self.debug or not (is_round or self._is_small(notes, asides)):
            return None
        kernels = self.training if training else self.inference
        runner, batch_memory = kernels.small, memory.get(training)
        if runner is None:
            return None
        if batch_memory is None:
            batch_memory = self.phase_memory(kernels.bound, memory)
        batch_memory.helped = self.helped_small
        return runner.run(notes, batch_memory)

    def _is_small(self, notes: SmallBatch | Round, asides: Collection[str]) -> bool:
        """Whether a batch is so small that it should run from its notes; blocks draw no numbers there."""
        fits = 0 < notes.examples <= SMALL_BATCH_EXAMPLES and notes.values <= SMALL_BATCH_VALUES
        draws = isinstance(notes, SmallBatch) and any(self.model.keys)
        together = self.settings.batched and not self.settings.bounded and bool(self.model.cells)
        return fits and together and not draws and not asides

    def limit_memory(self, memory: dict[bool, BatchMemory], nbytes: int, *, training: bool) -> None:
        memory.pop(not training, None)
        kernels = self.training if training else self.inference
        self.phase_memory(kernels.bound, memory).limit = nbytes

    def phase_memory(self, bound: Bound, memory: dict[bool, BatchMemory]) -> BatchMemory:
        """Return the memory of a phase, made when it is first needed."""
        if bound.training not in memory:
            batch_memory = BatchMemory(bound.types, poisoned=self.debug)
            for constant, number in bound.brought["constant"]:
                batch_memory.bring(number, _stacked(constant.array))
            memory[bound.training] = batch_memory
        return memory[bound.training]


def launched_of(bound: Bound, tables: Directions) -> tuple[int, int]:
    """Return how many kernels of routines are called, forward and backward: each once for every level."""
    counts = []
    for table in (tables.forward, tables.backward):
        kernels, first, last = table.launches[:, :HEAD].T if table is not None else np.zeros((3, 0), np.int64)
        counts.append(int((last - first)[kernels < len(bound.keys)].sum()))
    return counts[0], counts[1]


@dataclass(slots=True)
class ArrayRun:
    """A batch under way; see `foldbatch.engines.engine.Run`."""

    engine: ArrayEngine
    ready: ReadyBatch
    memory: BatchMemory
    losses: dict[tuple[int, int], Array] = field(default_factory=dict)
    metrics: dict[tuple[int, int], Array] = field(default_factory=dict)
    inputs: dict[tuple[int, int], Array] = field(default_factory=dict)
    within: Callable[[], AbstractContextManager[object]] = nullcontext
    _launched: list[LaunchTable] = field(default_factory=list)

    @property
    def bound(self) -> Bound:
        return self.ready.kernels.bound

    @property
    def _arenas(self) -> Index:
        """The arena of each value, by number."""
        return arenas_of(self.ready.batch.merged.trace, self.engine.model.signatures)

    def forward(self, feeds: Sequence[Sequence[Array]]) -> None:
        """Bring data, parameters and results into the batch's memory, and launch the forward kernels."""
        table = self.ready.tables.forward
        if not len(table.launches):
            return
        memory, brought = self.memory, self.bound.brought
        memory.fit(table.heights)
        model, batch = self.engine.model, self.ready.batch
        for (k, i), number in brought["feed"]:
            memory.bring(number, np.ascontiguousarray(feeds[k][i]))
        for parameter, number in brought["parameter"]:
            bring_value(memory, number, parameter)
        for (k, i), number in brought["metric"]:
            type_ = model.cells[k].graph.metrics[i].type
            self.metrics[k, i] = np.empty((len(batch.schedule.orders[k]), *type_.shape), type_.dtype)
            memory.bring(number, self.metrics[k, i])
        self._launch(table)
        for (k, i), number in brought["loss"]:
            self.losses[k, i] = memory.arrays[number][: len(batch.schedule.orders[k])]

    def backward(self, cotangents: Cotangents = ()) -> dict[Parameter, Gradient]:
        """Launch the backward kernels from the losses and the given cotangents; return the gradients."""
        table, schedule = self.ready.tables.backward, self.ready.batch.schedule
        assert table is not None, "forward must have run for training"
        for arena, rows in enumerate(schedule.zero_rows):
            if self.engine.model.arenas[arena].is_float:
                zero(self._arena("cotangents", arena), rows)
        self._seed(cotangents)
        dense = self._dense_gradients()
        for (k, i), number in self.bound.brought["input"]:
            type_ = self.engine.model.feeds[k][i].type
            self.inputs[k, i] = np.zeros((len(schedule.orders[k]), *type_.shape), type_.dtype)
            self.memory.bring(number, self.inputs[k, i])
        self._launch(table)
        parts: dict[Parameter, list[Gradient]] = {parameter: [array] for parameter, array in dense.items()}
        self._sum_rows(parts)
        return {
            parameter: terms[0]
            if len(terms) == 1
            else total(terms, self.engine.sum_copies(parameter.type.dtype))
            for parameter, terms in parts.items()
        }

    def loss_sums(self) -> dict[tuple[int, int], float]:
        return {key: float(values.sum(dtype=np.float64)) for key, values in self.losses.items()}

    def fetch(self, numbers: Sequence[int]) -> list[Array]:
        return fetched(numbers, self.engine.model.results, lambda: self._arenas, self.take)

    def take(self, arena: int, numbers: Index) -> Array:
        values = self.memory.arrays[self.bound.buffers["values", arena]]
        taken: Array = values.take(self.ready.batch.schedule.row_of.take(numbers), axis=0)
        return taken

    @property
    def launches(self) -> int:
        """How many levels of kernels have run."""
        return sum(int((table.launches[:, 2] - table.launches[:, 1]).sum()) for table in self._launched)

    def _launch(self, table: LaunchTable) -> None:
        """Walk a launch table; an id out of range gets the cell whose kernel found it."""
        self._launched.append(table)
        try:
            self.ready.kernels.walk(table, self.memory)
        except OutOfRangeError as error:
            error.cell = self.bound.keys[int(table.launches[error.launch, 0])].cell
            raise

    def _arena(self, kind: str, arena: int) -> Array:
        """Return the values or cotangents of an arena: ``[rows, *shape]``."""
        array: Array = self.memory.arrays[self.bound.buffers[kind, arena]]
        return array[: self.ready.batch.schedule.arena_rows[arena]]

    def _seed(self, cotangents: Cotangents) -> None:
        """Add the cotangents that the caller gives; a value may have several."""
        for arena, numbers, gradients in by_arena(cotangents, self._arenas) if cotangents else ():
            array, rows = self._arena("cotangents", arena), self.ready.batch.schedule.row_of.take(numbers)
            values = gradients.astype(array.dtype)
            if len(np.unique(rows)) == len(rows):
                array[rows] += values
            else:
                np.add.at(array, rows, values)

    def _dense_gradients(self) -> dict[Parameter, Array]:
        """Allocate the gradients that this batch's launches write, before they run; return them by parameter.

        A gradient to which several launches add begins as zeros.
        """
        gradients: dict[Parameter, Array] = {}
        yields = self.ready.tables.yields
        for parameter, number in self.bound.brought["gradient"]:
            if yields[parameter]:
                make = np.empty if yields[parameter] == 1 else np.zeros
                stacked: Array = make((1, *parameter.type.shape), parameter.type.dtype)
                self.memory.bring(number, stacked)
                gradients[parameter] = stacked[0, ...]
        return gradients

    def _sum_rows(self, parts: dict[Parameter, list[Gradient]]) -> None:
        """Add the gradients of tables, whose rows and ids the kernels have left."""
        for k, cell in enumerate(self.engine.model.cells):
            if not len(self.ready.batch.schedule.orders[k]):
                continue
            for sums in cell.sums:
                values, ids = self._written_rows(k, sums.values), self._written_rows(k, sums.ids)
                type_ = sums.parameter.type
                rows = sum_rows(values, ids, type_.shape[0], self.engine.sum_copies(type_.dtype))
                parts.setdefault(sums.parameter, []).append(rows)

    def _written_rows(self, k: int, binding: Binding) -> Array:
        """Return the rows that a cell's kernels wrote to a kept buffer, or a feed: ``[rows, *shape]``."""
        name: Fact = (binding.kind, k, binding.key)
        array: Array = self.memory.arrays[self.bound.buffers[name]]
        axis = self.engine.model.cells[k].training.kept[binding.key].axis if binding.kind == "kept" else CALL
        rows = array[: kept_rows(self.ready.batch.schedule, self.engine.model, k, axis)]
        return rows if axis.rank else rows[0, ...]


def bring_value(memory: BatchMemory, number: int, parameter: Parameter) -> None:
    value = parameter.value
    if memory.sources[number] is not value:
        memory.bring(number, _stacked(value))
        memory.sources[number] = value  # last: an interrupt leaves it to be brought again


def _stacked(array: Array) -> Array:
    """Return an array as a buffer of height 1, without gaps: ``[1, *shape]``."""
    return np.ascontiguousarray(array).reshape(1, *array.shape)


def zero(array: Array, rows: Index) -> None:
    """Set rows, in ascending order, to zero: ``array: [height, *shape]``, ``rows: [n]``."""
    if len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows):
        array[rows[0] : rows[-1] + 1] = 0
    elif len(rows):
        array[rows] = 0


class LevelsWatched(Watch):
    """For engines of arrays: each level of a launch is walked and timed on its own; see `Watch`."""

    note = "of the host; levels are called one by one, which takes longer than a step that nobody watches"

    def __init__(self) -> None:
        self._spans: list[Span] = []  # appended to by all threads

    def watched(self, ready: ReadyBatch, part: int) -> ReadyBatch:
        walk = partial(self._walk, ready.kernels, f"part {part + 1}")
        return ready._replace(kernels=replace(ready.kernels, walk=walk))

    def _walk(self, kernels: Kernels, row: str, table: LaunchTable, memory: BatchMemory) -> None:
        """Walk a launch table level by level, and note a span of time for each level."""
        for number, launch in enumerate(table.launches):
            kernel, first, stop = launch[:HEAD].tolist()
            name, cell = named(kernels.bound, kernel)
            for level in range(first, stop):
                single_level = launch[np.newaxis].copy()
                single_level[0, 1:HEAD] = level, level + 1
                start = time.perf_counter()
                try:
                    kernels.walk(replace(table, launches=single_level), memory)
                except OutOfRangeError as error:
                    error.launch = number
                    raise
                seconds = time.perf_counter() - start
                rows = int(table.bounds[level, 1] - table.bounds[level, 0])
                arguments = {"cell": cell, "level": level - first, "rows": rows}
                self._spans.append(Span(row, name, start, seconds, arguments))

    def spans(self) -> Sequence[Span]:
        """Return the spans noted so far, part by part: threads add theirs in any order."""
        return sorted(self._spans, key=lambda span: (len(span.row), span.row))
