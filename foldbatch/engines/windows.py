"""Windows: a part of a batch run as stretches of levels, so that a backward pass needs little memory.

A part that does not fit into memory is cut by the time at which its calls run. The windows run forward one
after the other in the same memory. Values that a later window reads, and those of results, are copied to a
*border*; all others are lost. The backward pass goes from the last window to the first: each runs forward
again from the border, then backward from the cotangents that later windows have left there. With about as
many windows as each has levels, memory grows with the square root of the number of levels, and the time by
one forward pass.

A window is a batch like any other: what it reads from the border are calls of *entry* cells, which have one
datum and yield it. So engines, policies and layouts know nothing of windows. Random numbers, metrics and
losses are those of the part run as a whole.

Source: Chen et al. 2016 (Training Deep Nets with Sublinear Memory Cost), section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.batch import ScheduledBatch, arenas_of, by_arena, fetched
from foldbatch.engines.engine import Cotangents, LoadedEngine, Run
from foldbatch.engines.parts import Naming
from foldbatch.engines.sums import total
from foldbatch.model.drafts import Feed
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array, Gradient, Parameter
from foldbatch.planning.merge import Merged
from foldbatch.planning.policies import find_policy, levels
from foldbatch.scheduler.schedule import CellTable, Schedule, seeded
from foldbatch.scheduler.trace import CellSignature, Index, Ints, Trace
from foldbatch.static.cell import stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import input_node

DELAYS = 8  # rounds in which calls move towards their first reader; calls that are left run earlier


def active_arenas(model: Model) -> frozenset[int]:
    """Return the arenas whose values have cotangents: from readers, or given for results."""
    return frozenset(
        arena
        for cell, signature in zip(model.cells, model.signatures, strict=True)
        for arena in (
            *(signature.outputs[output] for output in cell.ends.active_outputs),
            *(operand.arena for operand in signature.operands if operand.differentiable),
        )
    )


def with_entries(model: Model) -> Model:
    """Return a model with one more cell for each arena: its *entry*, which yields one datum as a value.

    The entry of arena ``a`` is cell ``len(model.cells) + a``. All other cells stay as they are, so engines
    find their kernels where they were kept.
    """
    active, entries, signatures = active_arenas(model), [], []
    for arena, type_ in enumerate(model.arenas):
        node = input_node(type_, name="entry")
        graph = CellGraph(f"entry of arena {arena}", (), (node,), (node,))
        first = frozenset({0}) if arena in active else frozenset[int]()
        cell = stage_cell(graph, Ends(active_outputs=first, active_feeds=first))
        entries.append(cell)
        signatures.append(
            CellSignature(
                name=graph.name, component=0, recursive=False, operands=(), outputs=(arena,), arguments=0
            )
        )
    later = [replace(signature, component=signature.component + 1) for signature in model.signatures]
    none: tuple[tuple[()], ...] = ((),) * len(entries)
    return replace(
        model,
        cells=(*model.cells, *entries),
        signatures=(*later, *signatures),
        losses=model.losses + none,
        metrics=model.metrics + none,
        labels=model.labels + none,
        marks=model.marks + none,
        keys=model.keys + none,
        feeds=model.feeds + tuple((Feed(type_, "entry", ""),) for type_ in model.arenas),
    )


class Planner(NamedTuple):
    """How a runner plans windows: an engine of the model with entries, and what schedules its batches."""

    model: Model  # with entries
    engine: LoadedEngine  # of that model
    policy: str  # as of `foldbatch.compile`
    # merges and schedules nothing: it builds the schedule of a merged trace of the model with entries
    build: Callable[[Merged], Schedule]


class Flow(NamedTuple):
    """The calls of a batch as a graph; calls of all cells are numbered one cell after the other."""

    firsts: list[int]  # per cell, and one more: the number of its first call
    maker: Index  # ``[values]``: the call that yields each value, -1 where there is none
    readers: Index  # ``[reads]``: the call that reads
    read: Index  # ``[reads]``: the value that it reads


def flow_of(trace: Trace, cells: Sequence[CellSignature]) -> Flow:
    """Return the graph of a trace's calls."""
    firsts = np.cumsum([0, *map(len, trace.calls)]).tolist()
    maker = np.full(trace.values, -1, np.int64)
    readers, read = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for rows, parts, cell, first in zip(trace.calls, trace.elements, cells, firsts, strict=False):
        numbers = np.arange(first, first + len(rows))
        for output in range(len(cell.outputs)):
            maker[rows[:, 0] + output] = numbers
        arguments = rows[:, 1 : 1 + cell.arguments]
        readers.append(np.repeat(numbers, cell.arguments))
        read.append(arguments.ravel().astype(np.int64))
        for sequence, elements in enumerate(parts):
            lengths = rows[:, 1 + cell.arguments + sequence]
            readers.append(np.repeat(numbers, lengths * elements.shape[1]))
            read.append(elements.ravel().astype(np.int64))
    return Flow(firsts, maker, np.concatenate(readers), np.concatenate(read))


def times_of(trace: Trace, cells: tuple[CellSignature, ...], flow: Flow) -> Index:
    """Return a time for each call, ``[calls]``: after those that it reads, close to its first reader.

    So a word is looked up in the window that reads it, and not in the first one.
    """
    depths = levels(find_policy("by_depth"), cells, trace.calls, trace.elements, trace.values)
    times: Index = np.concatenate([np.zeros(0, np.int64), *depths]).astype(np.int64)
    makers = flow.maker[flow.read]
    for _ in range(DELAYS):
        latest = np.full(len(times), np.iinfo(np.int64).max)
        np.minimum.at(latest, makers, times[flow.readers] - 1)
        moved = np.where(latest < np.iinfo(np.int64).max, latest, times)
        if np.array_equal(moved, times):
            break
        times = moved
    return times


class Cut(NamedTuple):
    """A batch cut into windows, before any of them is planned."""

    windows: Index  # ``[calls]``: the window of each call
    border: NDArray[np.bool_]  # ``[values]``: whether a value is kept in the border
    largest: int  # bytes of the calls of the largest window, as far as counts tell
    stored: int  # bytes of the values in the border


def cut_at(count: int, flow: Flow, times: Index, costs: Index, results: Index, sizes: Index) -> Cut:
    """Cut a batch into windows of about as many bytes each.

    Args:
        count: how many windows, if there are as many times.
        flow: the batch's calls.
        times: their times, see `times_of`.
        costs: the bytes of each call, ``[calls]``.
        results: the numbers of values that results hold.
        sizes: the bytes of each value, ``[values]``.
    """
    by_time = np.bincount(times, costs) if len(times) else np.zeros(1)
    ends = by_time.cumsum()
    bounds = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count)
    windows = np.searchsorted(np.unique(bounds), times)
    border = np.zeros(len(flow.maker), bool)
    border[flow.read[windows[flow.readers] > windows[flow.maker[flow.read]]]] = True
    border[results] = True
    largest = np.bincount(windows, costs).max(initial=0)
    return Cut(windows, border, int(largest), int(sizes[border].sum()))


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of levels, planned."""

    calls: tuple[Index, ...]  # per cell of the model ``[n]``: which of the batch's calls it has, ascending
    batch: ScheduledBatch  # these calls, and those of entries
    ready: object  # the batch as the engine runs it
    reads: tuple[Index, ...]  # per arena: the places in the border that its entries read
    yields: tuple[
        tuple[Index, Index], ...
    ]  # per arena: numbers of its values, and their places in the border


@dataclass(slots=True)
class Windowed:
    """A part of a batch made ready to run as windows; see `windowed`."""

    planner: Planner
    merged: Merged  # the part's trace
    batch: ScheduledBatch  # it with ranks in the order of calls, for those who read results and metrics
    windows: tuple[Window, ...]
    arenas: Index  # ``[values]``: the arena of each value
    places: Index  # ``[values]``: the place of a value in the border of its arena, -1 outside
    heights: list[int]  # per arena, how many values its border has
    training: bool

    @property
    def border_bytes(self) -> int:
        """The bytes of the border: values, and in training their cotangents."""
        active = active_arenas(self.planner.model) if self.training else frozenset[int]()
        return sum(
            height * type_.nbytes * (1 + (arena in active))
            for arena, (height, type_) in enumerate(zip(self.heights, self.planner.model.arenas, strict=True))
        )

    @property
    def nbytes(self) -> int:
        """The bytes that a run needs: the largest window, and the border."""
        engine = self.planner.engine
        return max((engine.nbytes(s.ready) for s in self.windows), default=0) + self.border_bytes

    @property
    def launched(self) -> tuple[int, int]:
        """How many kernels a run calls, forward (twice, while training) and backward."""
        counts = [self.planner.engine.launched(window.ready) for window in self.windows]
        return sum(f for f, _ in counts) * (1 + self.training), sum(b for _, b in counts)

    def forward(self, feeds: Sequence[Sequence[Array]], memory: object, first: int) -> WindowedRun:
        """Run all windows forward; arguments are those of `Engine.forward`, and the part's first example."""
        run = WindowedRun(self, feeds, memory, first)
        run.forward()
        return run


def whole_batch(merged: Merged, model: Model, results: Sequence[object]) -> ScheduledBatch:
    """Return a batch whose ranks are the numbers of its calls: of which only orders and examples are read."""
    tables = tuple(
        CellTable(np.arange(len(rows)), (), (), (), np.asarray(counts))
        for rows, counts in zip(merged.trace.calls, merged.counts, strict=True)
    )
    none = np.zeros(0, np.int64)
    schedule = Schedule(tables, (), (0,) * len(model.arenas), (none,) * len(model.arenas), none)
    return ScheduledBatch(merged, schedule, merged.trace.feeds, tuple(results), {})


def windowed(
    planner: Planner, merged: Merged, results: Sequence[object], cut: Cut, flow: Flow, *, training: bool
) -> Windowed:
    """Return a part made ready to run as the windows of a cut; `results` are those of its traces."""
    model = planner.model
    count = len(model.cells) - len(model.arenas)
    cells = model.signatures[:count]
    arenas = arenas_of(merged.trace, cells)
    places, heights = np.full(len(arenas), -1, np.int64), []
    for arena in range(len(model.arenas)):
        numbers = np.flatnonzero(cut.border & (arenas == arena))
        places[numbers] = np.arange(len(numbers))
        heights.append(len(numbers))
    batch = whole_batch(merged, model, results)
    of_batch = _Batch(planner, merged, cut, flow, arenas, places, training)
    windows = tuple([of_batch.window(number) for number in range(int(cut.windows.max(initial=0)) + 1)])
    return Windowed(planner, merged, batch, windows, arenas, places, heights, training)


@dataclass(slots=True)
class _Batch:
    """The batch that windows are cut from."""

    planner: Planner
    merged: Merged
    cut: Cut
    flow: Flow
    arenas: Index
    places: Index
    training: bool
    numbers: Index = field(init=False)  # ``[values]``: the numbers of values in the window that is made

    def __post_init__(self) -> None:
        self.numbers = np.full(len(self.arenas), -1, np.int32)

    def window(self, number: int) -> Window:
        """Return a window, planned."""
        trace, model, flow = self.merged.trace, self.planner.model, self.flow
        count = len(trace.calls)
        cells = model.signatures[:count]
        is_inside = self.cut.windows == number
        bounds = zip(flow.firsts[:-1], flow.firsts[1:], strict=True)
        calls = tuple([np.flatnonzero(is_inside[first:last]) for first, last in bounds])
        is_read = np.zeros(len(flow.maker), bool)
        is_read[flow.read[is_inside[flow.readers]]] = True
        read = np.flatnonzero(is_read & self.cut.border)
        read = read[self.cut.windows[flow.maker[read]] < number]
        results = [
            (trace.calls[k][calls[k], :1] + np.arange(len(cell.outputs))).ravel()
            for k, cell in enumerate(cells)
        ]
        values = np.sort(np.concatenate([read, *results]))  # those of one call stay next to each other
        self.numbers[values] = np.arange(len(values))
        reads = [read[self.arenas[read] == arena] for arena in range(len(model.arenas))]
        merged = self._merged(calls, reads, len(values))
        schedule = self.planner.build(merged)
        made_here = np.concatenate(results) if results else np.zeros(0, np.int64)
        kept = made_here[self.places[made_here] >= 0]
        kept_by_arena = [kept[self.arenas[kept] == arena] for arena in range(len(model.arenas))]
        active = active_arenas(model)
        if self.training:
            seeds = {a for a, numbers in enumerate(kept_by_arena) if a in active and len(numbers)}
            schedule = seeded(schedule, seeds) if seeds else schedule
        batch = ScheduledBatch(merged, schedule, schedule.arranged(merged.trace), (), {})
        ready = self.planner.engine.ready(batch, training=self.training)
        yields = tuple(
            [(self.numbers[numbers].astype(np.int64), self.places[numbers]) for numbers in kept_by_arena]
        )
        return Window(calls, batch, ready, tuple([self.places[numbers] for numbers in reads]), yields)

    def _merged(self, calls: tuple[Index, ...], reads: list[Index], values: int) -> Merged:
        """Return the trace of a window: calls of the model's cells, and of entries that read values."""
        trace, model = self.merged.trace, self.planner.model
        examples = len(self.merged.offsets)
        rows, feeds, counts = list[Array](), list[tuple[Any, ...]](), list[Index]()
        parts: list[tuple[Ints, ...]] = []
        for k, chosen in enumerate(calls):
            cell, table = model.signatures[k], trace.calls[k][chosen]
            table[:, : 1 + cell.arguments] = self.numbers[table[:, : 1 + cell.arguments]]
            rows.append(table)
            elements = []
            for sequence, of_all in enumerate(trace.elements[k]):
                inside = np.zeros(len(trace.calls[k]), bool)
                inside[chosen] = True
                lengths = trace.calls[k][:, 1 + cell.arguments + sequence]
                elements.append(self.numbers[of_all[np.repeat(inside, lengths)]])
            parts.append(tuple(elements))
            feeds.append(tuple([column[chosen] for column in trace.feeds[k]]))
            counts.append(np.bincount(self.merged.examples(k)[chosen], minlength=examples))
        for numbers in reads:
            rows.append(self.numbers[numbers][:, np.newaxis])
            parts.append(())
            feeds.append((np.zeros(len(numbers), np.int64),))  # `WindowedRun` brings the data
            of_examples = np.searchsorted(self.merged.offsets, numbers, "right") - 1
            counts.append(np.bincount(of_examples, minlength=examples))
        none: tuple[tuple[list[Any], ...], ...] = ((),) * len(rows)
        levels_of_calls = self._levels(rows, parts, values)
        part = Trace(tuple(rows), tuple(parts), levels_of_calls, tuple(feeds), none, values)
        return Merged(part, tuple(counts), np.zeros(examples, np.int64))

    def _levels(
        self, rows: list[Array], parts: list[tuple[Ints, ...]], values: int
    ) -> tuple[NDArray[np.int32], ...]:
        """Return the levels by which the policy plans calls."""
        policy = find_policy(self.planner.policy)
        return levels(policy, self.planner.model.signatures, rows, parts, values)


class WindowedRun:
    """A part under way as windows; see `foldbatch.engines.engine.Run`."""

    def __init__(self, part: Windowed, feeds: Sequence[Sequence[Array]], memory: object, first: int) -> None:
        self.part = part
        self.feeds = feeds  # per cell and feed, in the order of calls
        self.memory = memory
        self.first = first  # the number of the part's first example
        self.within: Callable[[], AbstractContextManager[object]] = nullcontext
        self.launches = 0
        self.metrics: dict[tuple[int, int], Array] = {}
        self.inputs: dict[tuple[int, int], Array] = {}
        self._losses: dict[tuple[int, int], float] = {}
        arenas = part.planner.model.arenas
        self._values = [np.empty((n, *t.shape), t.dtype) for n, t in zip(part.heights, arenas, strict=True)]
        self._latest: Run | None = None  # the last window, whose memory nothing has been written over

    @property
    def _cells(self) -> int:
        """How many cells the model has without entries."""
        return len(self.part.merged.trace.calls)

    def forward(self) -> None:
        """Run all windows forward, and keep what others read."""
        for window in self.part.windows:
            with self._naming(window):
                run = self._run(window)
                for key, loss in run.loss_sums().items():
                    self._losses[key] = self._losses.get(key, 0.0) + loss
                self._put(self.metrics, run.metrics, window)
                for arena, (numbers, places) in enumerate(window.yields):
                    if len(numbers):
                        self._values[arena][places] = run.take(arena, numbers)
            self._latest = run

    def loss_sums(self) -> Mapping[tuple[int, int], float]:
        return self._losses

    def fetch(self, numbers: Sequence[int]) -> list[Array]:
        return fetched(numbers, self.part.planner.model.results, lambda: self.part.arenas, self.take)

    def take(self, arena: int, numbers: Index) -> Array:
        values: Array = self._values[arena][self.part.places[numbers]]
        return values

    def backward(self, cotangents: Cotangents = ()) -> dict[Parameter, Gradient]:
        """Run windows backward, the last one first, each after it has run forward again."""
        model, part = self.part.planner.model, self.part
        active = active_arenas(model)
        cotangents_of = [np.zeros_like(x) if a in active else x[:0] for a, x in enumerate(self._values)]
        for arena, numbers, gradients in by_arena(cotangents, part.arenas) if cotangents else ():
            if arena in active:
                np.add.at(
                    cotangents_of[arena], part.places[numbers], gradients.astype(cotangents_of[arena].dtype)
                )
        sums: dict[Parameter, Gradient] = {}
        inputs: dict[tuple[int, int], Array] = {}
        latest, self._latest = self._latest, None
        for window in reversed(part.windows):
            with self._naming(window):
                run = self._run(window) if latest is None else latest
                latest = None
                gradients_of_window = run.backward([*_pairs(window, cotangents_of, active)])
            self._add(sums, gradients_of_window)
            entries = {key: rows for key, rows in run.inputs.items() if key[0] >= self._cells}
            for (k, _), rows in entries.items():
                order = window.batch.schedule.orders[k]
                cotangents_of[k - self._cells][window.reads[k - self._cells][order]] += np.asarray(rows)
            data = {key: rows for key, rows in run.inputs.items() if key not in entries}
            self._put(inputs, data, window)
        self.inputs = inputs
        return sums

    def _run(self, window: Window) -> Run:
        """Run a window forward, from the border."""
        planner, orders = self.part.planner, window.batch.schedule.orders
        feeds = [
            tuple([np.asarray(column)[calls[order]] for column in columns])
            for columns, calls, order in zip(self.feeds, window.calls, orders, strict=False)
        ]
        for arena, places in enumerate(window.reads):
            feeds.append((self._values[arena][places[orders[self._cells + arena]]],))
        run = planner.engine.forward(window.ready, feeds, self.memory)
        run.within = self._naming(window)  # type: ignore[misc] # mypy takes it for a method
        self.launches += run.launches
        return run

    def _naming(self, window: Window) -> Naming:
        """Return the context in which an id out of range names an example of the batch."""
        return Naming(self.part.planner.model, window.batch, self.first)

    def _put(
        self, rows_of: dict[tuple[int, int], Array], rows: Mapping[tuple[int, int], Array], window: Window
    ) -> None:
        """Write rows of a window's calls, by rank, where they stand in the order of all calls."""
        for (k, i), values in rows.items():
            array = np.asarray(values)
            if (k, i) not in rows_of:
                count = len(self.part.merged.trace.calls[k])
                rows_of[k, i] = np.zeros((count, *array.shape[1:]), array.dtype)
            rows_of[k, i][window.calls[k][window.batch.schedule.orders[k]]] = array

    def _add(self, sums: dict[Parameter, Gradient], gradients: Mapping[Parameter, Gradient]) -> None:
        """Add the gradients of a window to those of others."""
        engine = self.part.planner.engine
        for parameter, gradient in gradients.items():
            terms = [sums[parameter], gradient] if parameter in sums else [gradient]
            sums[parameter] = (
                total(terms, engine.sum_copies(parameter.type.dtype)) if len(terms) > 1 else gradient
            )


def _pairs(
    window: Window, cotangents_of: Sequence[Array], active: frozenset[int]
) -> Iterator[tuple[int, Array]]:
    """Yield the values of a window that have cotangents from elsewhere, by number, with these."""
    for arena, (numbers, places) in enumerate(window.yields):
        if arena in active:
            yield from zip(numbers.tolist(), cotangents_of[arena][places], strict=True)
