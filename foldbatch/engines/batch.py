"""One batch from traces to an execution ready to run: merge, tables, data in rank order."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from foldbatch.errors import counted
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array
from foldbatch.planning.layout import Layout
from foldbatch.planning.merge import Merged, merge
from foldbatch.planning.policies import COMPILED, Costs, Policy
from foldbatch.planning.sharing import Share, leaves
from foldbatch.planning.tables import build
from foldbatch.scheduler.schedule import Index, Schedule, without
from foldbatch.scheduler.trace import CellSignature, Trace
from foldbatch.static.op import Axis


class ScheduledBatch(NamedTuple):
    """A scheduled batch."""

    merged: Merged  # the joined traces
    schedule: Schedule  # the control tables
    feeds: tuple[tuple[Array, ...], ...]  # per cell and feed, the data in rank order
    results: Sequence[object]  # each example's result, as its trace holds it
    seconds: dict[str, float]  # the time that merging and building the tables took

    def __repr__(self) -> str:
        calls, steps = counted(self.merged.trace.size, "call"), counted(self.schedule.groups, "step")
        return f"Batch({counted(len(self.results), 'example')}, {calls} in {steps})"


def arenas_of(trace: Trace, cells: Sequence[CellSignature]) -> Index:
    """Return the arena of each value, -1 where a number stands for none: ``[values] int64``."""
    arenas = np.full(trace.values, -1, np.int64)
    for rows, cell in zip(trace.calls, cells, strict=True):
        for output, arena in enumerate(cell.outputs):
            arenas[rows[:, 0] + output] = arena
    return arenas


def by_arena(cotangents: Sequence[tuple[int, Array]], arenas: Index) -> Iterator[tuple[int, Index, Array]]:
    """Yield the values of each arena that have cotangents, by number ``[n]``, with these: ``[n, *shape]``."""
    numbers = np.array([number for number, _ in cotangents], np.int64)
    arena_of = arenas.take(numbers)
    for arena in np.unique(arena_of).tolist():
        places = np.flatnonzero(arena_of == arena).tolist()
        yield arena, numbers[places], np.stack([cotangents[i][1] for i in places])


def kept_rows(schedule: Schedule, model: Model, cell: int, axis: Axis) -> int:
    """Return how many rows a cell's buffer along an axis has in a batch."""
    if axis.rank < 2:
        return len(schedule.orders[cell]) if axis.rank else 1
    return int(schedule.cells[cell].segments[model.cells[cell].graph.axes.index(axis)][-1])


def fetched(
    numbers: Sequence[int],
    results: Collection[int],
    arenas: Callable[[], Index],
    take: Callable[[int, Index], Array],
) -> list[Array]:
    """Return values by their numbers.

    Args:
        numbers: the values.
        results: the arenas in which results lie.
        arenas: returns the arena of each value of the batch; it is asked only where there are several.
        take: returns copies of values that lie in an arena, see `foldbatch.engines.engine.Run.take`.
    """
    values = np.array(numbers, np.int64)
    if len(results) == 1:
        (arena,) = results
        return _rows(take(arena, values))
    rows: list[Array] = [np.zeros(0)] * len(values)
    arena_of = arenas().take(values)
    for arena in np.unique(arena_of).tolist():
        places = np.flatnonzero(arena_of == arena)
        for place, row in zip(places.tolist(), _rows(take(arena, values[places])), strict=True):
            rows[place] = row
    return rows


def _rows(array: Array) -> list[Array]:
    """Return the rows of an array, each an array, be it of no dimensions."""
    return list(array) if array.ndim > 1 else [array[i, ...] for i in range(len(array))]


def schedule_batch(
    traces: Sequence[Trace],
    cells: Sequence[CellSignature],
    policy: Policy,
    layout: Layout,
    arenas: int,
    share: Share = leaves,
    costs: Costs = COMPILED,
) -> ScheduledBatch:
    """Merge traces and build their control tables; arguments are those of `merge` and `build`."""
    start = time.perf_counter()
    merged = merge(traces, cells)
    middle = time.perf_counter()
    schedule = build(merged, cells, policy, layout, arenas, share, costs)
    feeds = schedule.arranged(merged.trace)
    seconds = {"merge": middle - start, "tables": time.perf_counter() - middle}
    return ScheduledBatch(merged, schedule, feeds, tuple([trace.result for trace in traces]), seconds)


@dataclass(frozen=True, slots=True)
class SubBatch:
    """A part of a batch: the examples that one thread runs."""

    first: int  # the number of its first example in the whole batch
    traces: Sequence[Trace]  # its examples
    batch: ScheduledBatch | None = None  # they scheduled, or None where that is done when the part runs
    # by engine, for training and for inference: what the engine has made ready of the batch
    ready: dict[tuple[object, bool], object] = field(default_factory=dict, compare=False, repr=False)

    def __reduce__(self) -> tuple[type[SubBatch], tuple[object, ...]]:
        # what is ready belongs to the kernels of one process
        return SubBatch, (self.first, self.traces, self.batch)


def needless(model: Model, asides: Collection[str]) -> frozenset[int]:
    """Return the cells that neither results need, nor those of ``losses`` and ``metrics`` asked for."""
    arenas, cells = {*model.results}, frozenset(range(len(model.cells)))
    asked = [getattr(model, name) for name in ("losses", "metrics") if name in asides]
    needed: set[int] = set()
    while True:
        reached = {
            k
            for k in cells - needed
            if not arenas.isdisjoint(model.signatures[k].outputs) or any(names[k] for names in asked)
        }
        if not reached:
            return cells - needed
        needed |= reached
        arenas |= {operand.arena for k in reached for operand in model.signatures[k].operands}


def pruned(batch: ScheduledBatch, cells: Collection[int]) -> ScheduledBatch:
    """Return a batch for a forward pass in which some cells, see `needless`, have no calls."""
    columns = enumerate(batch.feeds)
    feeds = tuple([tuple([data[:0] for data in cell]) if k in cells else cell for k, cell in columns])
    return batch._replace(schedule=without(batch.schedule, cells), feeds=feeds)


class Owner(Protocol):
    """A model made ready, for which batches are planned."""

    @property
    def fingerprint(self) -> str:
        """The digest that stands for it in pickled work: equal for programs that work alike."""

    @property
    def model(self) -> Model:
        """The model."""


def fingerprint(owner: Owner | str) -> str:
    """Return the digest that stands for the owner of pickled work: equal for programs that work alike."""
    return owner if isinstance(owner, str) else owner.fingerprint


def belongs(owner: Owner | str, ready: Owner) -> bool:
    """Return whether work is for a model made ready: made for it, or pickled by one that works alike."""
    return owner is ready or (isinstance(owner, str) and owner == ready.fingerprint)


@dataclass(frozen=True, slots=True, repr=False)
class Planned:
    """A batch made ready by `foldbatch.Program.plan`, to be run any number of times.

    It holds integers and the examples' data, but no parameters. Its length is the number of examples.
    Pickled, it can be run in another process by a program of the same block, compiled with the same options.
    """

    parts: tuple[SubBatch, ...]  # in the order of the batch
    owner: Owner | str  # the model made ready that it is for, or its fingerprint where it was pickled

    @property
    def traces(self) -> list[Trace]:
        """The traces of all examples, in order."""
        if len(self.parts) == 1:
            return [*self.parts[0].traces]
        return [trace for part in self.parts for trace in part.traces]

    def __reduce__(self) -> tuple[type[Planned], tuple[object, ...]]:
        return Planned, (self.parts, fingerprint(self.owner))

    def owned(self, owner: Owner) -> Planned:
        """Return the batch as its owner runs it; `foldbatch.engines.carried.CarriedPlan` is opened."""
        return self

    def __len__(self) -> int:
        return sum(len(part.traces) for part in self.parts)

    def __repr__(self) -> str:
        return f"Planned({len(self)} examples in {len(self.parts)} parts)"
