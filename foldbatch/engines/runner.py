"""Running traces on an engine: a batch cut into parts, each scheduled and run, forward and backward.

All engines share a runner's parts: threads with memory of their own, a lock, keys for random numbers,
results in the order of the batch. A runner knows traces and results; `Program` knows examples and
names.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial, wraps
from statistics import median
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.batch import ScheduledBatch, SubBatch, needless, pruned
from foldbatch.engines.budget import Bounded, Budget
from foldbatch.engines.engine import (
    Cotangents,
    EngineSettings,
    LoadedEngine,
    Run,
    choose_engine,
    choose_straight,
    load_engine,
)
from foldbatch.engines.parts import (
    Derived,
    ForwardPart,
    Naming,
    Seeds,
    collect,
    collected,
    empty_results,
    result_numbers,
    sum_losses,
)
from foldbatch.engines.planner import Planner, Ways
from foldbatch.engines.report import MemoryBound, Report, Shared, may_share, report_on
from foldbatch.engines.results import Losses, Metrics, Results, join
from foldbatch.engines.sums import total
from foldbatch.engines.threads import in_threads
from foldbatch.engines.visits import DataGradients
from foldbatch.engines.windows import Windowed
from foldbatch.errors import (
    BackendError,
    DeviceMemoryError,
    DeviceMemoryWarning,
    ParameterError,
    frames_inside,
)
from foldbatch.model.decoding import decode
from foldbatch.model.drafts import ASIDES
from foldbatch.model.dual import FeedTangents, with_tangents
from foldbatch.model.keys import example_numbers, keyed
from foldbatch.model.model import Model
from foldbatch.model.small_batches import SmallBatch
from foldbatch.model.weighted import weighed
from foldbatch.params.gradients import BatchGradients
from foldbatch.params.parameters import Gradient, Parameter, SparseRows, Updates
from foldbatch.scheduler.schedule import seeded
from foldbatch.scheduler.trace import Trace
from foldbatch.static.graph import PARAMETER, reachable
from foldbatch.system.processes import start_in_each_process

R = TypeVar("R")
P = ParamSpec("P")
L = TypeVar("L", bound="Locked")
# from a scheduled batch and its data, by rank, to the data as the engine is given them
Feed: TypeAlias = "Callable[[ScheduledBatch, Sequence[Sequence[Any]]], Sequence[Sequence[Any]]]"
# a part of a batch as the engine runs it, or its windows, see `Windowed`
ReadyPart: TypeAlias = "tuple[ScheduledBatch, object]"
Work: TypeAlias = "list[Trace] | tuple[SubBatch, ...]"  # a batch, or one that `Runner.plan` made ready
Phases: TypeAlias = "dict[str, float]"  # seconds by phase

TURNS = 5  # timed runs of a report, as far as they fit into
SECONDS = 2.0  # of them all; one turn is timed even if it takes longer


@dataclass(frozen=True, slots=True)
class Options:
    """How a program runs; see `foldbatch.compile`."""

    backend: str
    policy: str
    layout: str
    batched: bool
    threads: int
    debug: bool
    share: str | None = "leaves"
    precision: str = "fp32"
    launch: str = "auto"
    memory: int | None = None  # bytes that a batch may need
    device: Any = None  # what the engine computes on, see `EngineSettings`

    @property
    def engine_settings(self) -> EngineSettings:
        """The settings of the engine of a program's model."""
        planned = self.policy, self.layout, self.batched, self.memory is not None, self.threads > 1
        return EngineSettings(self.debug, self.precision, self.launch, *planned, self.device)


class Locked(Protocol):
    """An object whose `alone` methods run one after the other."""

    _lock: Any  # an RLock: it stays taken where a signal handler raises just then
    _busy: bool


def alone(method: Callable[Concatenate[L, P], R]) -> Callable[Concatenate[L, P], R]:
    """Serialise a method on its object's lock; refuse re-entry, as from a signal handler."""

    @wraps(method)
    def run_alone(self: L, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the method while the object's lock is held."""
        with self._lock:
            if self._busy:
                expected, actual = "one run after the other", "one within another, as of a signal handler"
                raise BackendError("Program", expected, actual, "run it when the other one has ended")
            try:
                try:
                    self._busy = True
                    return method(self, *args, **kwargs)
                finally:
                    self._busy = False
            finally:  # where a tracer has raised in the line above
                self._busy = False

    return run_alone


class Runner:
    """Runs traces of a model, for one thread at a time; others wait."""

    def __init__(self, model: Model, options: Options, seed: int) -> None:
        self.model = model
        self.options = options
        self.seed = seed
        settings = options.engine_settings
        backend = choose_engine(options.backend)
        self.engine: LoadedEngine = load_engine(backend, model, settings)
        limit = options.memory
        self._budget = None if limit is None else self._budget_of(limit, backend, settings)
        if isinstance(self.engine.updates, Updates):
            self.engine.updates.helped = options.threads > 1
        self.planner = Planner(model, self._ways(options))
        self._sparse = {parameter for cell in model.cells for parameter in cell.sparse}
        self._needless_cells: dict[frozenset[str], frozenset[int]] = {}  # by what is asked for
        self._frozen = {parameter for parameter in model.parameters if not parameter.trainable}
        start_in_each_process(self, Runner._start)

    def _budget_of(self, limit: int, backend: str, settings: EngineSettings) -> Budget:
        """Return the budget that cuts batches so that they need so many bytes at most."""
        options = self.options
        planning = options.policy, options.layout, options.share
        threads = options.threads if self.engine.splits else 1
        return Budget(limit, self.model, self.engine, backend, settings, *planning, threads)

    def _start(self) -> None:
        """Make what threads use: in a forked process another thread may have been writing to the memory."""
        self._memories = [self.engine.memory()]
        self._memories_for = self.engine  # the engine that made them
        self._small_memory = self.engine.memory()  # of small batches
        self._pool = ThreadPoolExecutor(max(1, self.options.threads - 1), thread_name_prefix="foldbatch")
        self._lock = threading.RLock()
        self._busy = False

    def plan(self, traces: list[Trace]) -> tuple[SubBatch, ...]:
        """Return a batch cut into parts and scheduled, for `run` or `value_and_grad` of this runner."""
        if self._budget is not None:
            return tuple([part.part for part in self._bounded(traces, training=True)])
        return self.planner.plan(traces)

    @property
    def is_bounded(self) -> bool:
        """Whether a budget of memory decides how batches are cut."""
        return self._budget is not None

    def _ways(self, options: Options) -> Ways:
        """Return how batches are planned by options."""
        engine = self.engine
        one_by_one = not options.batched or engine.one_by_one
        plain = options.policy, options.layout, options.share, options.threads, options.debug
        return Ways(*plain, one_by_one, engine.splits, engine.costs)

    def scheduled(self, traces: Sequence[Trace], options: Options | None = None) -> ScheduledBatch:
        """Return traces merged and scheduled, by the runner's options or by those given."""
        planner = self.planner if options is None else Planner(self.model, self._ways(options))
        return planner.scheduled(traces)

    def run(self, batch: Work, step: int = 0, asides: Collection[str] = ASIDES) -> Results:
        """Return one result per trace, of inference, with those of ``losses`` and ``metrics`` asked for."""
        work = self.asked(batch, asides)
        parts = self._map_parts(partial(self._run, step, asides), work, training=False)
        return join(parts) if parts else empty_results(self.model, asides)

    def pruned(self, batch: ScheduledBatch, asides: Collection[str]) -> ScheduledBatch:
        """Return a batch of all cells without the calls that inference of what is asked for does not need."""
        cells = self._needless(frozenset(asides))
        return pruned(batch, cells) if cells else batch

    def usual_asides(self, batches: Iterable[ScheduledBatch]) -> Collection[str]:
        """Return the side outputs that inference computes: losses where a model has no results, else none."""
        return () if any(result_numbers(self.model, batch) for batch in batches) else ("losses",)

    def asked(self, batch: Work, asides: Collection[str]) -> Work:
        """Return a batch for inference: one that was planned without calls that nothing asked for needs."""
        if isinstance(batch, list) or self._budget is not None:
            return batch
        return tuple([self._pruned(part, asides) for part in batch])

    def _needless(self, asides: frozenset[str]) -> frozenset[int]:
        if asides not in self._needless_cells:
            self._needless_cells[asides] = needless(self.model, asides)
        return self._needless_cells[asides]

    def _pruned(self, part: SubBatch, asides: Collection[str]) -> SubBatch:
        """Return a part for inference as `pruned` does; a planned part keeps what was made."""
        cells = self._needless(frozenset(asides))
        if not cells or part.batch is None:
            return part
        kept = part.ready.get((cells, False))
        if not isinstance(kept, SubBatch):
            kept = part.ready[cells, False] = SubBatch(part.first, part.traces, pruned(part.batch, cells))
        return kept

    @alone
    @np.errstate(all="ignore")
    def run_small(self, asides: Collection[str], notes: SmallBatch) -> Results | None:
        """Return the results of a small batch of inference; None where a schedule must run it."""
        ran = self.engine.run_small(self._small_memory, notes, asides)
        if ran is None:
            return None
        return Results(decode(self.model.result, notes.results, notes.offsets[:-1], ran.fetch))

    def value_and_grad(
        self, batch: Work, step: int, numbers: Sequence[int] = (), weights: NDArray[np.float32] | None = None
    ) -> tuple[float, BatchGradients[Parameter]]:
        """Return the summed loss, and its gradient for every trainable parameter of the model.

        The examples of a part of a larger batch have `numbers` in that. A model of
        `foldbatch.model.weighted` needs the weights of examples.
        """
        count = len(batch) if isinstance(batch, list) else sum(len(part.traces) for part in batch)
        none = (type(numbers) is tuple and not numbers) or np.shape(numbers) == (0,)
        example_of = None if none else example_numbers(numbers, count)
        parts = self._map_parts(
            partial(self._differentiate, step, None, numbers=example_of, weights=weights),
            batch,
            self._folded,
            training=True,
        )
        return sum((part.losses.total for part in parts), 0.0), self._summed(parts)

    def step(self, batch: Work, step: int) -> tuple[Results, BatchGradients[Parameter]]:
        """Run a batch for training; return results and metrics beside the gradients of `value_and_grad`."""
        work = partial(self._differentiate, step, None, asides=ASIDES)
        parts = self._map_parts(work, batch, self._folded, training=True)
        results = [part.results for part in parts if part.results is not None]
        return join(results) if results else empty_results(self.model, ASIDES), self._summed(parts)

    def vjp(
        self, traces: list[Trace], step: int, seeds: Seeds | None, gather: Callable[[DataGradients], Metrics]
    ) -> tuple[Results, BatchGradients[Parameter]]:
        """Return the gradients of data, and those of parameters.

        Without seeds, the cotangents of results, gradients come from losses alone. `gather` turns the
        gradients of data into metrics by name.

        The results are None for each trace; their metrics are the gradients of data, their loss the summed
        loss.
        """
        parts = self._map_parts(
            partial(self._differentiate, step, seeds, visited=True), traces, self._folded, training=True
        )
        calls = [np.zeros(0, np.int64)] * len(self.model.cells)
        results = [Results([None] * part.size, gather(part.visits), part.losses) for part in parts]
        joined = (
            join(results)
            if results
            else Results([], gather(DataGradients({}, calls, calls)), Losses(0.0, {}))
        )
        return joined, self._summed(parts)

    def forward(
        self,
        batch: Work,
        step: int,
        memories: list[object],
        *,
        seeded_results: bool,
        training: bool,
        tangents: FeedTangents | None = None,
        feed: Feed | None = None,
    ) -> list[ForwardPart]:
        """Run a batch forward in memory that the caller keeps, one for each part, for its backward pass.

        What is missing of memories is made and added. Without training, there is no backward pass. A dual
        model whose data move needs their tangents. `feed` changes the data that the engine is given, of a
        batch that is one part.
        """
        work = partial(self.begin, step, seeded_results, tangents=tangents, feed=feed)
        return self._map_parts(work, batch, training=training, memories=memories)

    @alone
    def backward(
        self, parts: Sequence[ForwardPart], cotangents: Sequence[Cotangents], *, visited: bool
    ) -> tuple[list[DataGradients], BatchGradients[Parameter]]:
        """Run parts that `forward` has begun backward, once, from cotangents of their values.

        Returns the gradients of data per part, where `visited` with their calls, and those of parameters.
        """
        finish = partial(self.finish, visited=visited)
        tasks = [partial(finish, *part_and_seeds) for part_and_seeds in zip(parts, cotangents, strict=True)]
        derived = self._side_by_side(tasks) if tasks else []
        return [part.visits for part in derived], self._summed(derived)

    @alone
    def pulled(
        self, begun: ForwardPart, pull: Callable[[Any], dict[Parameter, Gradient]]
    ) -> BatchGradients[Parameter]:
        """Return the gradients of a batch of one part, by a function that runs it backward, once.

        As `backward`, for an engine whose runs can do more than `foldbatch.engines.engine.Run` says.
        """
        with Naming(self.model, begun.batch, begun.part.first):
            gradients = pull(begun.run)
        called = [k for k, order in enumerate(begun.batch.schedule.orders) if len(order)]
        none = DataGradients({}, (), ())
        return self._summed([Derived(Losses(0.0, {}), gradients, none, len(begun.part.traces), called)])

    @property
    def is_whole(self) -> bool:
        """Whether a batch is one part, whatever its examples."""
        return self._budget is None and not self._one_by_one and not self.engine.splits

    def report(self, traces: list[Trace], phases: Phases, *, compare: bool) -> Report:
        """Return a report on one batch, run whole on one thread; `phases` are the seconds spent before.

        To compare, the batch runs some times more, in turn with more calls shared where that may be quicker;
        medians count. Else the first run is timed, with all that it has to make.
        """
        if self._budget is not None:
            return self._bounded_report(traces, phases)
        return self._whole_report(traces, phases, compare=compare)

    @alone
    def _whole_report(self, traces: list[Trace], phases: Phases, *, compare: bool) -> Report:
        """Return the report on a batch that runs whole."""
        options = self.options
        with np.errstate(all="ignore"):
            batch, ready, timed = self._timed(traces, options)
            kernels, needed = self.engine.launched(ready), self.engine.nbytes(ready)
            report = report_on(batch, self.model, kernels, needed, phases | timed)
            if not compare:
                return report
            tries = [partial(self._timed, traces, options)]
            if not self._one_by_one and may_share(report, options.share):
                tries.append(partial(self._timed, traces, replace(options, share="subtrees")))
            baseline, *alternatives = _in_turn(tries)
        instead, shared = median(sum(seconds_by_phase.values()) for seconds_by_phase in baseline[1]), None
        for alternative, seconds in alternatives:
            distinct = sum(len(table.order) for table in alternative.schedule.cells)
            shared = Shared(
                distinct, median(sum(seconds_by_phase.values()) for seconds_by_phase in seconds), instead
            )
        return replace(
            report,
            phases=phases
            | {name: median(seconds_by_phase[name] for seconds_by_phase in baseline[1]) for name in timed},
            shared=shared,
            runs=len(baseline[1]),
        )

    def _bounded_report(self, traces: list[Trace], phases: Phases) -> Report:
        """Return a report on a batch as it runs under a budget of memory.

        Forward and backward passes take turns, so both are counted as backward.
        """
        assert self._budget is not None
        batch = self.scheduled(traces)
        timed = dict(batch.seconds)
        start = time.perf_counter()
        ready = self.engine.ready(batch, training=True)
        timed["ready"] = time.perf_counter() - start
        kernels, needed = self.engine.launched(ready), self.engine.nbytes(ready)
        parts = self._bounded(traces, training=True)
        largest = max((sum(part.nbytes for part in wave) for wave in self._budget.waves(parts)), default=0)
        start = time.perf_counter()
        work = partial(self._differentiate, 0, None)
        self._mapped_in_waves(work, tuple([part.part for part in parts]), self._folded, None, training=True)
        timed["backward"] = time.perf_counter() - start
        report = report_on(batch, self.model, kernels, needed, phases | timed)
        windows = sum(part.windows for part in parts)
        return replace(report, bound=MemoryBound(self._budget.limit, largest, len(parts), windows))

    def _timed(self, traces: list[Trace], options: Options) -> tuple[ScheduledBatch, object, Phases]:
        """Run a batch forward and backward, whole; return how it was planned, readied, and its seconds."""
        batch = self.scheduled(traces, options)
        phases = dict(batch.seconds)
        start = time.perf_counter()
        ready = self.engine.ready(batch, training=True)
        phases["ready"] = time.perf_counter() - start
        start = time.perf_counter()
        part = SubBatch(0, traces, batch)
        with Naming(self.model, batch, part.first):
            run = self._forward(part, (batch, ready), self._memories[0], 0)
            self.engine.wait()
            phases["forward"] = time.perf_counter() - start
            start = time.perf_counter()
            run.backward()
            float(sum_losses(self.model, run).total)  # where both passes are launched together, they are now
            self.engine.wait()
            phases["backward"] = time.perf_counter() - start
        return batch, ready, phases

    @cached_property
    def _readers(self) -> dict[Parameter, frozenset[int]]:
        """The cells that read each parameter."""
        readers: dict[Parameter, set[int]] = {}
        for k, cell in enumerate(self.model.cells):
            for node in reachable(cell.training.graph.results):
                if node.op is PARAMETER:
                    readers.setdefault(node.attrs["parameter"], set()).add(k)
        return {parameter: frozenset(cells) for parameter, cells in readers.items()}

    def _summed(self, parts: Sequence[Derived]) -> BatchGradients[Parameter]:
        """Return the gradients of all trainable parameters, summed over the parts of a batch."""
        gradients: dict[Parameter, Gradient] = {}
        called = {k for part in parts for k in part.called}
        for parameter in self.model.parameters:
            if parameter.trainable:
                if parameter in self._frozen:  # its gradient is nowhere computed
                    fix = "compile the block or the function again; layers keep their parameters"
                    actual = "one that was frozen then"
                    expected = "a parameter that was compiled to be trained"
                    raise ParameterError(parameter.path, expected, actual, fix)
                gradient = self._sum_over(parts, parameter)
                gradients[parameter] = self._no_gradient(parameter) if gradient is None else gradient
        if len(called) == len(self.model.cells):  # as in most batches
            return BatchGradients(gradients)
        return BatchGradients(
            gradients, [p for p in gradients if called.isdisjoint(self._readers.get(p, ()))]
        )

    def _sum_over(self, parts: Sequence[Derived], parameter: Parameter) -> Gradient | None:
        """Return the gradient of a parameter, summed over parts; None where no part has one."""
        if len(parts) == 1:
            return parts[0].gradients.get(parameter)
        terms = [part.gradients[parameter] for part in parts if parameter in part.gradients]
        sums = self.engine.sum_copies(parameter.type.dtype) if len(terms) > 1 else None
        return total(terms, sums) if terms else None

    def _no_gradient(self, parameter: Parameter) -> Gradient:
        """Return a gradient of zeros, sparse where other batches yield sparse gradients."""
        shape, dtype = parameter.type.shape, parameter.type.dtype
        if parameter in self._sparse:
            return SparseRows(np.zeros(0, np.int64), np.zeros((0, *shape[1:]), dtype), shape)
        return np.zeros(shape, dtype)

    def _map_parts(
        self,
        work: Callable[[SubBatch, ReadyPart, object], R],
        batch: Work,
        fold: Callable[[list[R]], list[R]] | None = None,
        *,
        training: bool,
        memories: list[object] | None = None,
    ) -> list[R]:
        """Return the results of `work` for each part of a batch, given the part, its `_ready` and memory.

        `memories`, if given, become those of the parts, one for each: so what is in them can stay. `fold`
        makes the results of parts that have run smaller, where a budget of memory lets parts run in turns.
        """
        if self._budget is not None:
            return self._mapped_in_waves(work, batch, fold, memories, training=training)
        parts = [SubBatch(*part) for part in self.planner.cut(batch)] if isinstance(batch, list) else batch
        if not parts:
            return []
        try:
            return self._worked(work, parts, memories, training=training)
        except DeviceMemoryError as error:
            if memories is not None:  # of batches that are held others may be let go
                raise
            shortage = error
        traces = batch if isinstance(batch, list) else [trace for part in batch for trace in part.traces]
        return self._mapped_by_halves(work, traces, fold, shortage, training=training)

    def _mapped_by_halves(
        self,
        work: Callable[[SubBatch, ReadyPart, object], R],
        traces: list[Trace],
        fold: Callable[[list[R]], list[R]] | None,
        shortage: DeviceMemoryError,
        *,
        training: bool,
    ) -> list[R]:
        """Return the results of `_map_parts`, under the largest budget that a short device allows.

        The budget stays, so that later batches are cut at once; a warning says so.
        """
        engine, options = self.engine, self.options
        with self._lock:
            self._memories = [engine.memory()]
        settings = options.engine_settings._replace(launch=choose_straight("auto", options.backend))
        limit = engine.nbytes(engine.ready(self.scheduled(traces), training=training)) // 2
        self.engine = load_engine(options.backend, self.model, settings)
        while True:
            self._memories = [self.engine.memory()]
            self._budget = self._budget_of(limit, options.backend, settings)
            try:
                results = self._mapped_in_waves(work, traces, fold, None, training=training)
            except DeviceMemoryError:
                limit //= 2
                continue
            except BackendError as error:
                raise (shortage if error.where == "memory" else error) from None
            fix = f"set options={{'memory': {limit}}}, or make smaller batches"
            warning = DeviceMemoryWarning("backend", "batches that fit into the device", shortage.found, fix)
            warn(warning, stacklevel=frames_inside())
            return results

    @alone
    def _worked(
        self,
        work: Callable[[SubBatch, ReadyPart, object], R],
        parts: Sequence[SubBatch],
        memories: list[object] | None,
        *,
        training: bool,
    ) -> list[R]:
        """Make parts ready in this thread, and do their work side by side, each in a memory of its own."""
        self.engine.helped = len(parts) == 1 and self.options.threads > 1
        if self._one_by_one and memories is None:
            memory = self._memories[0]
            return [work(part, self._ready(part, training=training), memory) for part in parts]
        memories = self._memories if memories is None else memories
        memories += [self.engine.memory() for _ in parts[len(memories) :]]
        # all are made ready in this thread: this is mostly Python, which threads cannot run side by side
        ready = [self._ready(part, training=training) for part in parts]
        return self._side_by_side(list(map(partial, [work] * len(parts), parts, ready, memories)))

    def _bounded(self, batch: Work, *, training: bool, waiting: bool = False) -> list[Bounded]:
        """Return the parts of a batch that fit into the budget of memory; parts that were planned stay."""
        assert self._budget is not None
        if isinstance(batch, list):
            side_by_side = 1 if self._one_by_one else max(1, len(self.planner.cut(batch)))
            budget, scheduled = self._budget, self.scheduled
            return budget.parts(batch, scheduled, side_by_side, training=training, waiting=waiting)
        bounded = list[Bounded]()
        for part in batch:
            if part.batch is not None:
                self._ready(part, training=training)
            measured = self._budget.measured(part, training=training)
            if measured is not None:
                bounded.append(measured)
            else:  # planned for another phase, or under another budget
                traces, first = part.traces, part.first
                bounded += self._budget.parts(
                    traces, self.scheduled, 1, training=training, waiting=waiting, first=first
                )
        return bounded

    @alone
    def _mapped_in_waves(
        self,
        work: Callable[[SubBatch, ReadyPart, object], R],
        batch: Work,
        fold: Callable[[list[R]], list[R]] | None,
        memories: list[object] | None,
        *,
        training: bool,
    ) -> list[R]:
        """Return the results of `_map_parts`, with memory of as many parts as the budget allows."""
        assert self._budget is not None
        parts = self._bounded(batch, training=training, waiting=memories is not None)
        results = list[R]()
        if memories is not None:  # the caller's parts keep theirs, so all of them are one wave
            memories[:] = [self._engine_of(part).memory() for part in parts]
        for wave in self._budget.waves(parts) if memories is None else [parts] * bool(parts):
            memories_of_wave = self._wave_memories(wave) if memories is None else memories
            tasks = []
            for part, memory in zip(wave, memories_of_wave, strict=True):
                engine, border = self._engine_of(part), 0
                engine.helped = len(wave) == 1 and self.options.threads > 1
                ready = self._ready(part.part, training=training)
                if isinstance(ready[1], Windowed):
                    border = ready[1].border_bytes
                room = max(self._budget.limit // len(wave), part.nbytes)
                engine.limit_memory(memory, room - border, training=training)
                tasks.append(partial(work, part.part, ready, memory))
            results += self._side_by_side(tasks)
            results = results if fold is None else fold(results)
        return results

    def _engine_of(self, part: Bounded) -> LoadedEngine:
        """Return the engine that runs a part: of windows, that of the model with entries."""
        assert self._budget is not None
        return self._budget.planner.engine if part.windows else self.engine

    def _wave_memories(self, wave: Sequence[Bounded]) -> list[object]:
        """Return a memory for each part of a wave, those of the wave before where one engine runs both."""
        engine = self._engine_of(wave[0])
        if self._memories_for is not engine:
            self._memories, self._memories_for = [], engine
        del self._memories[len(wave) :]
        self._memories += [engine.memory() for _ in wave[len(self._memories) :]]
        return self._memories

    def _folded(self, parts: list[Derived]) -> list[Derived]:
        """Return parts that have run backward with their gradients added up in the first one."""
        if len(parts) < 2:
            return parts
        gradients: dict[Parameter, Gradient] = {}
        for parameter in dict.fromkeys(p for part in parts for p in part.gradients):
            gradient = self._sum_over(parts, parameter)
            assert gradient is not None, "a part has it"
            gradients[parameter] = gradient
        first, *following = parts
        return [replace(first, gradients=gradients), *[replace(part, gradients={}) for part in following]]

    def _side_by_side(self, tasks: Sequence[Callable[[], R]]) -> list[R]:
        return [task() for task in tasks] if self._one_by_one else in_threads(self._pool, tasks)

    @property
    def _one_by_one(self) -> bool:
        return not self.options.batched or self.engine.one_by_one

    def _ready(self, part: SubBatch, *, training: bool) -> ReadyPart:
        """Return a part scheduled and ready for the engine; a planned part keeps what was made."""
        ready = part.ready.get((self.engine, training))
        if isinstance(ready, Windowed):
            return ready.batch, ready
        if part.batch is None:
            batch = self.scheduled(part.traces)
            return batch, self.engine.ready(batch, training=training)
        if ready is None:
            ready = self.engine.ready(part.batch, training=training)
            part.ready[self.engine, training] = ready
        return part.batch, ready

    def _forward(
        self,
        part: SubBatch,
        ready: ReadyPart,
        memory: object,
        step: int,
        numbers: NDArray[np.int64] | None = None,
        weights: NDArray[np.float32] | None = None,
        tangents: FeedTangents | None = None,
        feed: Feed | None = None,
    ) -> Run:
        """Run a part forward: keys of random numbers stand for call numbers; weights and tangents join."""
        batch, engine_batch = ready
        feeds = batch.feeds
        if weights is not None or any(self.model.keys):
            examples = [table.examples + part.first for table in batch.schedule.cells]
            if any(self.model.keys):
                drawing = examples if numbers is None else [numbers[places] for places in examples]
                feeds = keyed(feeds, self.model.keys, self.seed, step, drawing)
            if weights is not None:
                feeds = weighed(feeds, self.model, weights, examples)
        if tangents is not None:
            feeds = with_tangents(feeds, self.model, tangents, part.first, batch.schedule.orders)
        if feed is not None:
            feeds = feed(batch, feeds)  # type: ignore[assignment] # the engine knows what it is given
        if isinstance(engine_batch, Windowed):
            return engine_batch.forward(feeds, memory, part.first)
        run = self.engine.forward(engine_batch, feeds, memory)
        run.within = Naming(self.model, batch, part.first)  # type: ignore[misc] # mypy takes it for a method
        return run

    @np.errstate(all="ignore")  # a program tells of losses that are not finite
    def _run(
        self, step: int, asides: Collection[str], part: SubBatch, ready: ReadyPart, memory: object
    ) -> Results:
        """Run a part in inference, and collect its results."""
        with Naming(self.model, ready[0], part.first):
            return collect(self.model, ready[0], self._forward(part, ready, memory, step), asides)

    def _differentiate(
        self,
        step: int,
        seeds: Seeds | None,
        part: SubBatch,
        ready: ReadyPart,
        memory: object,
        *,
        visited: bool = False,
        asides: Collection[str] | None = None,
        numbers: NDArray[np.int64] | None = None,
        weights: NDArray[np.float32] | None = None,
    ) -> Derived:
        """Run a part forward and backward; `numbers` and `weights` are those of `value_and_grad`.

        Where `visited`, the result lists the calls that read data; with `asides`, it has the results.
        """
        begun = self.begin(step, seeds is not None, part, ready, memory, numbers, weights)
        results, later = None, False
        if asides is not None:
            later = self.engine.expect(begun.run, result_numbers(self.model, begun.batch))
            if not later:
                results = collected(self.model, begun, asides)
        cotangents: Cotangents = ()
        if seeds is not None:
            seeds_of_examples = begun.batch_seeds(seeds[part.first : part.first + len(part.traces)])
            cotangents = [pair for pairs in seeds_of_examples for pair in pairs]
        derived = self.finish(begun, cotangents, visited=visited)
        if asides is not None and later:
            results = collected(self.model, begun, asides)
        return derived if results is None else replace(derived, results=results)

    @np.errstate(all="ignore")
    def begin(
        self,
        step: int,
        seeded_results: bool,  # noqa: FBT001 - given by partial application
        part: SubBatch,
        ready: ReadyPart,
        memory: object,
        numbers: NDArray[np.int64] | None = None,
        weights: NDArray[np.float32] | None = None,
        *,
        tangents: FeedTangents | None = None,
        feed: Feed | None = None,
    ) -> ForwardPart:
        """Run a part forward, for training; `seeded_results` says that results will have cotangents."""
        batch, _ = ready
        if seeded_results and not isinstance(ready[1], Windowed):
            arenas = {arena for arena in self.model.results if self.model.arenas[arena].is_float}
            batch = batch._replace(schedule=seeded(batch.schedule, arenas))
            ready = batch, self.engine.ready(batch, training=True)
        with Naming(self.model, batch, part.first):
            run = self._forward(part, ready, memory, step, numbers, weights, tangents, feed)
            return ForwardPart(part, batch, run)

    @np.errstate(all="ignore")
    def finish(self, begun: ForwardPart, cotangents: Cotangents, *, visited: bool) -> Derived:
        """Run a part that has begun backward, once; where `visited`, list the calls that read data."""
        part, batch, run = begun.part, begun.batch, begun.run
        with Naming(self.model, batch, part.first):
            gradients = run.backward(cotangents)
            merged, orders = batch.merged, batch.schedule.orders
            inputs = {
                (k, i): values[np.argsort(orders[k])]  # from ranks back to the order of calls
                for (k, i), values in run.inputs.items()
            }
        calls = [rows[:, 0].astype(np.int64) for rows in merged.trace.calls] if visited else []
        visits = DataGradients(inputs, calls, [merged.examples(k) for k in range(len(calls))])
        called = [k for k, order in enumerate(orders) if len(order)]
        return Derived(sum_losses(self.model, run), gradients, visits, len(part.traces), called)


def _in_turn(
    tries: Sequence[Callable[[], tuple[ScheduledBatch, object, Phases]]],
) -> list[tuple[ScheduledBatch, list[Phases]]]:
    """Run each some times, in turn; return its batch, and its phases but for those of the first turn."""
    runs = [(run()[0], list[Phases]()) for run in tries]
    begun = time.perf_counter()
    for _ in range(TURNS):
        for run, (_, phases) in zip(tries, runs, strict=True):
            phases.append(run()[2])
        if time.perf_counter() - begun > SECONDS:
            break
    return runs
