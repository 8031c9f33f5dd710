"""Batches run by captured graphs: one launch for a whole step.

A batch that fits into a class (see `capacities`) is numbered anew, so that addresses and arguments are those
of the class. What is launched for it one by one is launched once while the stream is captured, for as many
rows as there is room for; from then on it is one graph. Kernels take the true counts from the table.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from foldbatch.engines.bindings import Bound, Directions, launch_tables
from foldbatch.engines.cuda.capacities import fit, learn
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.drivers.driver import Graph
from foldbatch.engines.cuda.kernels import Kernel
from foldbatch.engines.cuda.packing import PackedBatch, Spaced, pack
from foldbatch.engines.cuda.steps import LaunchStep, steps_of
from foldbatch.engines.facts import facts_of
from foldbatch.engines.launch import Ints
from foldbatch.engines.report import Captures
from foldbatch.scheduler.rooms import Placed, Rooms, Shape, shape_of
from foldbatch.scheduler.schedule import Schedule
from foldbatch.system.processes import no_garbage, start_in_each_process

FIRST = 8  # batches that classes are learned from, where nobody learned them before
KEPT = 512  # batches that are remembered, to learn classes from
GRAPHS = 32  # that are kept: of each class one for each block of staging, and for each kind of update
TRIES = 3  # captures of one graph that may fail
LONGEST = 2048  # steps of a batch that may have a class: graphs of deeper ones would take long to make


class Key(NamedTuple):
    """What the arguments of a graph's launches depend on."""

    rooms: Rooms
    table: int
    addresses: bytes
    update: Hashable


@dataclass(frozen=True, slots=True)
class Room:
    """A class made ready: all that its batches share.

    Attributes:
        tables: the launch tables of a batch that takes all room.
        steps: of both directions, for so many rows.
    """

    tables: Directions
    steps: tuple[Sequence[LaunchStep], Sequence[LaunchStep]]


@dataclass(frozen=True, slots=True)
class InClass:
    """A batch in its class.

    Attributes:
        rooms: the class.
        room: made ready.
        placed: the batch numbered anew.
        packed: its table.
    """

    rooms: Rooms
    room: Room
    placed: Placed
    packed: PackedBatch


class Captured:
    """The graphs of one phase of a model.

    Args:
        device: where.
        bound: the routines of the phase.
        kernels: of these.

    Attributes:
        classes: the classes of batches.
        hits: batches that fit into a class.
        misses: batches that did not, by reason.
        milliseconds: how long it took to capture each graph.
        failed: the error of the last capture that failed.
    """

    def __init__(self, device: Device, bound: Bound, kernels: Sequence[Kernel]) -> None:
        self.device = device
        self.classes: list[Rooms] = []
        self.hits = 0
        self.misses: Counter[str] = Counter()
        self.milliseconds: list[float] = []
        self.failed = ""
        self._bound = bound
        self._kernels = kernels
        self._made: dict[Rooms, Room] = {}
        self._seen: deque[Shape] = deque(maxlen=KEPT)
        self._wait = FIRST  # misses until classes are learned
        self._missed = 0
        start_in_each_process(self, Captured._start)

    def _start(self) -> None:
        self._graphs: OrderedDict[Key, Graph] = OrderedDict()
        self._failures: Counter[Key] = Counter()
        self._warm: set[tuple[Rooms, Hashable]] = set()

    # -- classes

    def arranged(self, schedule: Schedule, ids: dict[tuple[int, int], Ints]) -> InClass | None:
        """Return a batch in a class, or None where it fits into none; ids are those of `pack`."""
        if len(schedule.steps) > LONGEST:
            self.misses[f"it has more than {LONGEST:,} steps"] += 1
            return None
        shape = shape_of(schedule, self._bound.model.signatures)
        with self.device.lock:
            self._seen.append(shape)
            found = fit(self.classes, shape)
            if isinstance(found, str):
                self._miss(found)
                return None
            self.hits += 1
            room = self._made.get(found.rooms) or self._room(found.rooms)
        placed = found.rooms.place(schedule, found.slots)
        return InClass(found.rooms, room, placed, self._packed(found.rooms, room.tables, placed, ids))

    def _room(self, rooms: Rooms) -> Room:
        """Return a class made ready, by a batch that takes all room."""
        full = rooms.full
        tables = launch_tables(self._bound, full)
        ranks = tuple([table.order for table in full.cells])
        elements = tuple(
            [tuple([np.arange(int(part[-1])) for part in table.segments]) for table in full.cells]
        )
        placed = Placed(full, ranks, elements, ())
        packed = self._packed(rooms, tables, placed, {})
        both = [
            () if direction is None else tuple(steps_of(self._kernels, direction, spaced=True))
            for direction in (packed.forward, packed.backward)
        ]
        room = self._made[rooms] = Room(tables, (both[0], both[1]))
        return room

    def _packed(
        self, rooms: Rooms, full: Directions, placed: Placed, ids: dict[tuple[int, int], Ints]
    ) -> PackedBatch:
        """Return the table of a batch of a class."""
        model, schedule = self._bound.model, placed.schedule
        bounds = np.array([(start, stop) for _, _, start, stop in schedule.steps], np.int64).reshape(-1, 2)
        nothing = {k: (0, *[0] * len(table.segments)) for k, table in enumerate(schedule.cells)}
        _, index = facts_of(schedule, nothing)
        forward, backward = replace(full.forward, bounds=bounds, index=index), full.backward
        if backward is not None:
            backward = replace(backward, bounds=np.ascontiguousarray(bounds[::-1]), index=index)
        tables = full._replace(forward=forward, backward=backward)
        if self._bound.training:
            for k, cell in enumerate(model.cells):
                for i, sums in enumerate(cell.sums):
                    if rooms.sizes[k]:
                        shape = model.feeds[k][sums.ids.key].type.shape
                        ids = {(k, i): np.zeros((len(placed.ranks[k]), *shape), np.int64), **ids}
        ids = dict(sorted(ids.items()))
        return pack(self._bound, self._kernels, tables, schedule, ids, Spaced(rooms.full, full, placed))

    def _miss(self, reason: str) -> None:
        self.misses[reason] += 1
        self._missed += 1
        if self._missed >= self._wait:
            self._learn()
            self._wait *= 2  # new classes are new graphs: they become rarer

    def learn(self) -> None:
        """Learn classes from the batches that were arranged; batches are counted from here on."""
        with self.device.lock:
            self._learn()
            self.hits = 0
            self.misses.clear()

    def _learn(self) -> None:
        before = {rooms.shape: rooms for rooms in self.classes}  # they have graphs
        learned = learn(self._seen, self._bound.model.signatures)
        self.classes = [before.get(rooms.shape, rooms) for rooms in learned]
        self._made = {rooms: room for rooms, room in self._made.items() if rooms in self.classes}
        self._missed = 0

    def captures(self) -> Captures:
        """Return what is to be told of classes and graphs."""
        with self.device.lock:
            sizes = tuple(
                sorted(
                    sum(map(len, self._made[rooms].steps)) for rooms in self.classes if rooms in self._made
                )
            )
            reasons = (f"a graph was not captured: {self.failed}",) if self.failed else ()
            return Captures(sizes, self.hits, dict(self.misses), tuple(self.milliseconds), reasons)

    # -- graphs

    def run(self, key: Key, enqueue: Callable[[], None]) -> bool:
        """Run what a function enqueues, by a graph where there is one; return whether there is.

        The first batch of a class runs straight: what is loaded and allocated for it cannot be while a stream
        is captured. A capture is in the calling thread, which collects no garbage meanwhile: freed memory and
        modules are calls of the driver, too.
        """
        graph = self._graphs.get(key)
        warm = key.rooms, key.update
        if graph is None and warm in self._warm and self._failures[key] < TRIES:
            graph = self._capture(key, enqueue)
        if graph is None:
            self._warm.add(warm)
            enqueue()
            return False
        self._graphs.move_to_end(key)
        self.device.driver.replay(graph, self.device.stream)
        return True

    def _capture(self, key: Key, enqueue: Callable[[], None]) -> Graph | None:
        driver, stream, start = self.device.driver, self.device.stream, time.perf_counter()
        try:
            with no_garbage():
                driver.begin_capture(stream)
                enqueue()
                graph = driver.end_capture(stream)
        except Exception as error:  # noqa: BLE001 - training goes on, kernels are launched one by one
            self.failed = f"{type(error).__name__}: {error}"
            self._failures[key] += 1
            with suppress(Exception):
                driver.end_capture(stream)
            return None
        self.milliseconds.append(1000 * (time.perf_counter() - start))
        self._graphs[key] = graph
        if len(self._graphs) > GRAPHS:
            self._graphs.popitem(last=False)
        return graph
