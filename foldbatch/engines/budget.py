"""A budget of memory: how a batch is cut so that its arenas and kept buffers never need more bytes.

There are two means. Examples run in *parts*, one after the other, whose gradients are added: that costs
little as long as a part has many calls a level. Where it would have few, or is a single example, it runs as
*windows* (`foldbatch.engines.windows`), whose values are computed twice. Counts of calls decide; that a
part fits is checked when it is planned, before memory is written to.

Source: Chen et al. 2016 (Training Deep Nets with Sublinear Memory Cost); MXNet's mirror option.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from operator import mul

import numpy as np

from foldbatch.engines.batch import ScheduledBatch, SubBatch
from foldbatch.engines.engine import EngineSettings, LoadedEngine, load_engine
from foldbatch.engines.threads import runs_of
from foldbatch.engines.windows import (
    Planner,
    Windowed,
    active_arenas,
    cut_at,
    flow_of,
    times_of,
    windowed,
    with_entries,
)
from foldbatch.errors import BackendError, BlockValueError
from foldbatch.model.decoding import numbers_in
from foldbatch.model.model import Model
from foldbatch.planning.layout import find_layout
from foldbatch.planning.merge import Merged, merge
from foldbatch.planning.policies import find_policy
from foldbatch.planning.sharing import find_share
from foldbatch.planning.tables import build
from foldbatch.scheduler.schedule import Index, Schedule
from foldbatch.scheduler.trace import Trace
from foldbatch.static.op import CALL
from foldbatch.types import describe_value

CALLS_PER_LEVEL = 24  # calls a level: with fewer, windows of more examples take less time than smaller parts
WINDOWS_GROWTH = 1.4  # of the number of windows, until they fit
UNITS = {"": 1, "b": 1} | {
    f"{letter}{kind}": base**power
    for power, letter in enumerate("kmgt", 1)
    for kind, base in (("b", 1000), ("ib", 1024))
}
SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)


def bytes_of(size: object) -> int | None:
    """Return a size in bytes; None stands for no limit.

    Raises:
        BlockValueError: when it is no positive whole number, nor text such as ``2 GiB`` or ``500 MB``.

    >>> bytes_of("2 GiB"), bytes_of("500 MB"), bytes_of(1 << 20), bytes_of(None)
    (2147483648, 500000000, 1048576, None)
    """
    if size is None:
        return None
    match = SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is not None and match[2].lower() in UNITS:
        size = int(float(match[1]) * UNITS[match[2].lower()])
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        fix = "for example options={'memory': '2 GiB'}, or a number of bytes"
        raise BlockValueError("options memory", "a positive size", describe_value(size), fix)
    return int(size)


@dataclass(frozen=True, slots=True)
class Bounded:
    """A part of a batch that fits."""

    part: SubBatch
    nbytes: int  # that it needs
    windows: int = 0  # how many it runs as; 0 of a part that runs as a whole


@dataclass(slots=True)
class _Request:
    """The settings that all parts of a batch have in common."""

    schedule: Callable[[Sequence[Trace]], ScheduledBatch]
    room: int  # the bytes of each of the parts that run side by side
    training: bool
    waiting: bool
    # bytes that the last part that did not fit needed, for each that counts foresaw: of this batch alone, so
    # that a training that is resumed cuts its batches as before
    ratio: float = 1.0
    # what fits in no way: the bytes that it needs at least, and which examples it is
    refused: list[tuple[int, str]] = field(default_factory=list)


@dataclass(slots=True)
class Budget:
    """Cuts batches of one runner."""

    limit: int  # bytes for all that runs at once
    model: Model
    engine: LoadedEngine  # of the model
    backend: str
    settings: EngineSettings
    policy: str
    layout: str
    share: str | None
    threads: int  # how many parts run side by side, at most
    _planner: Planner | None = None

    def parts(
        self,
        traces: Sequence[Trace],
        schedule: Callable[[Sequence[Trace]], ScheduledBatch],
        side_by_side: int,
        *,
        training: bool,
        waiting: bool = False,
        first: int = 0,
    ) -> list[Bounded]:
        """Return the parts of a batch, in order, each planned and within the limit.

        Args:
            traces: the batch.
            schedule: merges and schedules traces, see `foldbatch.engines.runner.Runner.scheduled`.
            side_by_side: how many parts of the batch are worth to run at the same time.
            training: whether a backward pass follows.
            waiting: whether all parts keep their memory at once, so that examples cannot run in turns.
            first: the number of the first trace in a larger batch.

        Raises:
            BackendError: when an example needs more than the limit whichever way it is cut; it says how much.
        """
        if not traces:
            return []
        costs = self._costs(traces, training=training)
        request = _Request(schedule, self.limit // side_by_side, training, waiting)
        count = max(side_by_side, ceil(sum(costs) / request.room))
        count = min(count, side_by_side if waiting else max(side_by_side, _most_parts(traces)))
        bounded = [
            part
            for start, stop in runs_of(costs, min(count, len(traces)))
            for part in self._part(traces[start:stop], first + start, request)
        ]
        if request.refused:
            least, examples = max(request.refused)
            fix = "raise options={'memory': ...} to that, or make the examples smaller"
            expected = f"a batch that needs at most {self.limit:,} bytes"
            raise BackendError("memory", expected, f"{examples}: {least:,} bytes or more", fix)
        return bounded

    def _part(self, traces: Sequence[Trace], first: int, request: _Request) -> list[Bounded]:
        """Return parts that fit for consecutive examples: one if it may be, as a whole or as windows."""
        training, tried = request.training, list[int]()
        key = self.engine, training
        cost = sum(self._costs(traces, training=training))
        rooms = {request.room, self.limit} if len(traces) == 1 and not request.waiting else {request.room}
        for room in sorted(rooms):
            if cost * request.ratio <= room:
                batch = request.schedule(traces)
                ready = self.engine.ready(batch, training=training)
                nbytes = self.engine.nbytes(ready)
                if nbytes <= room:
                    return [Bounded(SubBatch(first, traces, batch, {key: ready}), nbytes)]
                request.ratio = nbytes / cost
                tried.append(nbytes)
            part, least = self._windows(traces, room, cost * request.ratio, request)
            if part is not None:
                sub_batch = SubBatch(first, traces, None, {key: part})
                return [Bounded(sub_batch, part.nbytes, len(part.windows))]
            tried.append(least)
        if len(traces) == 1 or request.waiting:
            last = first + len(traces) - 1
            examples = f"example {first}" if len(traces) == 1 else f"examples {first} to {last}"
            rooms_taken = self.limit // request.room if request.waiting else 1  # others take as much
            request.refused.append((min(tried) * rooms_taken, examples))
            return []
        middle = len(traces) // 2
        return [
            *self._part(traces[:middle], first, request),
            *self._part(traces[middle:], first + middle, request),
        ]

    def _windows(
        self, traces: Sequence[Trace], limit: int, needed: float, request: _Request
    ) -> tuple[Windowed | None, int]:
        """Return a part as the fewest windows that fit, or None; and the least bytes that were tried."""
        planner, training = self.planner, request.training
        cells = self.model.signatures
        merged = merge(traces, cells)
        flow = flow_of(merged.trace, cells)
        times = times_of(merged.trace, cells, flow)
        by_cell = self._cell_costs(training=training)
        costs = (np.repeat(by_cell, np.diff(flow.firsts)) * request.ratio).astype(np.int64)
        results = [trace.result for trace in traces]
        numbers = np.array(numbers_in(self.model.result, results, merged.offsets.tolist()), np.int64)
        sizes = self._value_sizes(merged.trace, training=training)
        levels = int(np.ptp(times)) + 1 if len(times) else 1
        count = max(2, int(needed // limit))
        least = 0
        while True:
            count = min(count, levels)
            cut = cut_at(count, flow, times, costs, numbers, sizes)
            foreseen = cut.largest + cut.stored
            if foreseen <= limit or count == levels:
                part = windowed(planner, merged, results, cut, flow, training=training)
                least = part.nbytes if not least else min(least, part.nbytes)
                if part.nbytes <= limit:
                    return part, least
            if count == levels or (cut.stored > limit and least):
                return None, least or foreseen
            count = max(count + 1, int(count * WINDOWS_GROWTH))

    @property
    def planner(self) -> Planner:
        """The planner of windows, made when it is first needed: it has kernels of the model with entries."""
        if self._planner is None:
            model = with_entries(self.model)
            engine = load_engine(self.backend, model, self.settings)
            policy, layout, share = find_policy(self.policy), find_layout(self.layout), find_share(self.share)

            def built(merged: Merged) -> Schedule:
                return build(merged, model.signatures, policy, layout, len(model.arenas), share, engine.costs)

            self._planner = Planner(model, engine, self.policy, built)
        return self._planner

    def measured(self, part: SubBatch, *, training: bool) -> Bounded | None:
        """Return a planned part with the bytes that it needs; None if it is not ready or does not fit."""
        ready = part.ready.get((self.engine, training))
        if isinstance(ready, Windowed):
            nbytes, count = ready.nbytes, len(ready.windows)
        else:
            nbytes, count = 0 if ready is None else self.engine.nbytes(ready), 0
        return Bounded(part, nbytes, count) if ready is not None and nbytes <= self.limit else None

    def waves(self, parts: Sequence[Bounded]) -> Iterator[list[Bounded]]:
        """Yield the parts that run side by side: of one kind, and together within the limit."""
        wave: list[Bounded] = []
        for part in parts:
            together = sum(x.nbytes for x in wave) + part.nbytes
            alike = not wave or bool(wave[0].windows) == bool(part.windows)
            if len(wave) == self.threads or together > self.limit or not alike:
                yield wave
                wave = []
            wave.append(part)
        if wave:
            yield wave

    def _cell_costs(self, *, training: bool) -> Index:
        """Return the bytes of a call of each cell, of values and kept buffers, 1 or more: ``[cells]``."""
        active = active_arenas(self.model) if training else frozenset[int]()
        costs = []
        for cell, signature in zip(self.model.cells, self.model.signatures, strict=True):
            values = sum(self.model.arenas[a].nbytes * (1 + (a in active)) for a in signature.outputs)
            kept = cell.phase(training=training).kept
            costs.append(1 + values + sum(node.type.nbytes for node in kept if node.axis is CALL))
        return np.array(costs, np.int64)

    def _costs(self, traces: Sequence[Trace], *, training: bool) -> list[int]:
        """Return the bytes of each example's calls, 1 or more."""
        by_cell = self._cell_costs(training=training).tolist()
        return [max(1, sum(map(mul, by_cell, trace.counts))) for trace in traces]

    def _value_sizes(self, trace: Trace, *, training: bool) -> Index:
        """Return the bytes that each value takes in the border: ``[values]``."""
        active = active_arenas(self.model) if training else frozenset[int]()
        sizes = np.zeros(trace.values, np.int64)
        for rows, signature in zip(trace.calls, self.model.signatures, strict=True):
            for output, arena in enumerate(signature.outputs):
                sizes[rows[:, 0] + output] = self.model.arenas[arena].nbytes * (1 + (arena in active))
        return sizes


def _most_parts(traces: Sequence[Trace]) -> int:
    """Return into how many parts a batch may be cut that they still have `CALLS_PER_LEVEL` calls a level."""
    longest = max((int(rows.max(initial=0)) + 1 for trace in traces for rows in trace.levels), default=1)
    return sum(trace.size for trace in traces) // (longest * CALLS_PER_LEVEL)
