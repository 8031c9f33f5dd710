"""Running calls as they become ready: which cell next, step by step over a whole batch.

Levels fix each call's group from its own example. Where cells call each other that wastes groups:
it is better to look at the ready calls of the whole batch, choose a cell, run all its ready calls, and
look again. Every turn runs at least one call, so this ends.

A turn costs a few NumPy calls, tens of microseconds; running the group that it makes costs as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from foldbatch.scheduler.schedule import Index
from foldbatch.scheduler.trace import CellSignature, Ints, Trace, arguments_of, lengths_of

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CallGraph:
    """The calls of some cells and the readers of their results; results of other cells count as given.

    Attributes:
        cells: the cells' numbers; below, *place* is a cell's place in this list.
        starts: ``[cells + 1] int64``: the number of each cell's first call; calls are numbered cell by cell.
        waits: ``[calls] int64``: how many results of these calls each call reads.
        ends: ``[calls + 1] int64``: where each call's readers begin in `readers` (compressed rows).
        readers: ``[reads] int64``: the calls that read a call's results, once for every read.
    """

    cells: tuple[int, ...]
    starts: Index
    waits: Index
    ends: Index
    readers: Index

    def places(self) -> Index:
        """Return the place of each call's cell: ``[calls] int64``."""
        return np.repeat(np.arange(len(self.cells)), np.diff(self.starts))

    def split(self, figures: Ints) -> list[Ints]:
        """Cut an array with one entry per call, ``[calls]``, into one array per cell."""
        return np.split(figures, self.starts[:-1])[1:]

    def readers_of(self, calls: Index) -> Index:
        """Return the readers of the results of some calls, once for every read: ``[n]`` to ``[reads]``."""
        lengths = self.ends[calls + 1] - self.ends[calls]
        shifts = self.ends[calls] - (np.cumsum(lengths) - lengths)
        readers: Index = self.readers[np.repeat(shifts, lengths) + np.arange(int(lengths.sum()))]
        return readers


def call_graph(trace: Trace, signatures: Sequence[CellSignature], cells: Sequence[int]) -> CallGraph:
    """Return the graph of the calls of some cells."""
    counts = [len(trace.calls[k]) for k in cells]
    starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    maker = np.full(trace.values, -1, np.int64)
    for k, start, count in zip(cells, starts[:-1], counts, strict=True):
        for output in range(len(signatures[k].outputs)):
            maker[trace.calls[k][:, 0] + output] = start + np.arange(count)
    sources, readers = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for k, start, count in zip(cells, starts[:-1], counts, strict=True):
        own = start + np.arange(count)
        sources.append(maker[arguments_of(trace, signatures, k)].ravel())
        readers.append(np.repeat(own, signatures[k].arguments))
        for s, width in enumerate(signatures[k].sequences):
            sources.append(maker[trace.elements[k][s]].ravel())
            readers.append(np.repeat(own, lengths_of(trace, signatures, k, s) * width))
    source, reader = np.concatenate(sources), np.concatenate(readers)
    source, reader = source[source >= 0], reader[source >= 0]
    calls = int(starts[-1])
    ends = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=calls))])
    waits = np.bincount(reader, minlength=calls)
    return CallGraph(tuple(cells), starts, waits, ends, reader[np.argsort(source)])


class Frontier:
    """The calls whose arguments are there; *free* calls take no time and run as soon as they are ready.

    Shapes: ``free: [calls]`` or None; arrays of calls are ``[n] int64``, ascending where none is free.
    """

    def __init__(self, graph: CallGraph, free: Mask | None = None) -> None:
        self.graph = graph
        self.free = free
        self.waits = graph.waits.copy()

    def first(self) -> Index:
        """Return the calls that are ready before any has run."""
        return self._pass(np.flatnonzero(self.waits == 0))

    def after(self, done: Index) -> Index:
        """Return the calls that become ready when some ready calls, ``done: [n]``, have run."""
        return self._pass(self._released(done))

    def _released(self, done: Index) -> Index:
        if not len(done):
            return done
        readers = self.graph.readers_of(done)
        np.subtract.at(self.waits, readers, 1)
        ready = np.sort(readers[self.waits[readers] == 0])
        differs = np.ones(len(ready), bool)  # a call that reads several results is listed once
        differs[1:] = ready[1:] != ready[:-1]
        return ready[differs]

    def _pass(self, ready: Index) -> Index:
        """Run the free calls among ready ones, and those that become ready, until no free call is left."""
        if self.free is None:
            return ready
        not_free = []
        while len(ready):
            free = self.free[ready]
            not_free.append(ready[~free])
            ready = self._released(ready[free])
        return np.concatenate(not_free) if not_free else ready


class Choice(Protocol):
    """A rule that chooses the cell to run next, and takes note of every turn."""

    def next(self, ready: Index) -> int:
        """Return the place of the next cell; ``ready: [cells]`` counts the calls that each could run."""

    def ran(self, place: int, calls: Index) -> None:
        """Take note that some calls of a cell, ``[n]``, have run."""


class GreatestRatio:
    """The cell of the greatest |ready| / |typewise ready|; of equals the one with more ready calls.

    A call is *typewise ready* when it waits for no call of its own cell, directly or through others;
    for other cells it may still wait. Where the ratio is 1, running the cell now is as good as later:
    its longest chain gets shorter by one, so the lower bound falls with every such turn.

    Source: Chen et al. 2023 (ED-Batch), section 3: there it is part of the reward that a policy is
    trained by; here it is the policy.
    """

    def __init__(self, graph: CallGraph) -> None:
        places = graph.places()
        self.typewise = [Frontier(graph, places != place) for place in range(len(graph.cells))]
        self.waiting = np.array([len(frontier.first()) for frontier in self.typewise])

    def next(self, ready: Index) -> int:
        """Return the place of the next cell."""
        return max(np.flatnonzero(ready).tolist(), key=lambda p: (ready[p] / self.waiting[p], ready[p]))

    def ran(self, place: int, calls: Index) -> None:
        """Count the calls of this cell that have become typewise ready."""
        self.waiting[place] += len(self.typewise[place].after(calls)) - len(calls)


class LeastMeanDepth:
    """The cell whose calls have the least mean depth in the batch; of equals the earlier one.

    Args:
        graph: the calls.
        depths: ``[calls]``: the longest path to each call.

    Source: Neubig, Goldberg and Dyer 2017 (DyNet), section 3, at the granularity of cells.
    """

    def __init__(self, graph: CallGraph, depths: Ints) -> None:
        self.means = [float(part.mean()) if len(part) else 0.0 for part in graph.split(depths)]

    def next(self, ready: Index) -> int:
        """Return the place of the next cell."""
        return min(np.flatnonzero(ready).tolist(), key=self.means.__getitem__)

    def ran(self, place: int, calls: Index) -> None:
        """Change nothing: a mean is that of all calls, not of those left."""


def drain(graph: CallGraph, choice: Choice) -> tuple[list[Ints], list[tuple[int, int]]]:
    """Run all calls, in every turn all ready ones of the cell that is chosen.

    Args:
        graph: the calls.
        choice: the rule that chooses the cell of each turn.

    Returns:
        Per cell of the graph ``[n] int32``: the turn of the cell in which each call runs, from 0 on.
        And all turns in order, each a pair: the cell's number and the number of the cell's turn.
    """
    frontier = Frontier(graph)
    turn = np.full(len(graph.waits), -1, np.int32)
    turns: list[tuple[int, int]] = []
    taken = [0] * len(graph.cells)
    waiting: list[list[Index]] = [[] for _ in graph.cells]
    ready = np.zeros(len(graph.cells), np.int64)
    fresh = frontier.first()
    while True:
        cuts = np.searchsorted(fresh, graph.starts)
        ready += np.diff(cuts)
        for place in np.flatnonzero(np.diff(cuts)).tolist():
            waiting[place].append(fresh[cuts[place] : cuts[place + 1]])
        if not ready.any():
            break
        place = choice.next(ready)
        calls = np.concatenate(waiting[place])
        waiting[place], ready[place] = [], 0
        turn[calls] = taken[place]
        turns.append((graph.cells[place], taken[place]))
        taken[place] += 1
        choice.ran(place, calls)
        fresh = frontier.after(calls)
    assert (turn >= 0).all(), "a call waits for itself"
    return graph.split(turn), turns
