"""Batches run by captured graphs: one launch for a whole step, in a capacity class learned from batches.

A class is a sequence of slots, one a step, each with room for some calls. A batch's steps are put into slots
in their order; the other slots stay empty. Backward the same slots are gone through in reverse.

A batch that fits into a class is numbered anew, so that addresses and arguments are those
of the class. What is launched for it one by one is launched once while the stream is captured, for as many
rows as there is room for; from then on it is one graph. Kernels take the true counts from the table.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from math import ceil, inf, log
from typing import NamedTuple, TypeVar

import numpy as np

from foldbatch.engines.bindings import Bound, Directions, launch_tables
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.driver import Graph
from foldbatch.engines.cuda.forms import BatchForm, form_of_class
from foldbatch.engines.cuda.kernels import Kernel
from foldbatch.engines.cuda.steps import BothSteps, PackedBatch, RoomTable, steps_of_both
from foldbatch.engines.launch import Ints
from foldbatch.engines.report import Captures
from foldbatch.planning.rooms import Measures, Placed
from foldbatch.planning.table_loops import Tables
from foldbatch.scheduler.rooms import Item, Rooms, Shape, is_level
from foldbatch.scheduler.schedule import Flat
from foldbatch.scheduler.trace import CellSignature
from foldbatch.system.processes import no_garbage, start_in_each_process

K = TypeVar("K", bound=Hashable)
CLASSES = 4  # at most
SHORTER = 0.8  # steps of the next class, as a part of this one's
GROWTH = 1.5  # slots of a class, as a multiple of the steps of its longest batch, at most
DEVIATIONS = 4  # above the mean, for which there is room
ROOM_GRAIN = 16  # rooms are multiples of it


def misfit(classes: Sequence[Rooms], shape: Shape) -> str:
    """Return why a batch fits into no class, of which the last one has the most steps."""
    if not classes:
        return "no class is learned yet"
    if len(shape.items) > len(classes[-1].shape.items):
        return "it has more steps than any class"
    kinds = list(map(_kind, shape.items))
    if any(_holds_in_order(list(map(_kind, rooms.shape.items)), kinds) for rooms in classes):
        return "it has more rows than a class has room for, or rows that lie otherwise"
    return "its steps come in an order that no class has"


def _kind(item: Item) -> tuple[int, tuple[str, ...]]:
    return item.cell, item.stages


def _once(kinds: Sequence[tuple[int, tuple[str, ...]]]) -> bool:
    """Whether stages that go through all calls of a cell stand in one slot each."""
    counts = Counter((cell, stage) for cell, stages in kinds for stage in stages)
    return all(
        is_level(stages) or all(counts[cell, stage] == 1 for stage in stages) for cell, stages in kinds
    )


def _holds_in_order(kinds: Sequence[Hashable], wanted: Sequence[Hashable]) -> bool:
    """Return whether a sequence has the wanted kinds in their order."""
    remaining = iter(kinds)
    return all(kind in remaining for kind in wanted)


def learn(shapes: Sequence[Shape], cells: Sequence[CellSignature]) -> list[Rooms]:
    """Return classes that batches fit into: at most `CLASSES`, none for an empty list.

    The longest batch and those with at least `SHORTER` of its steps have a class together. The next class is
    made in the same way of those that are left, and the last one of all the others. A batch whose order would
    make a class too long is left out of it, and so is one whose cells are cut otherwise into levels and steps
    through all of their calls; those have another class, if there may be one more.
    """
    longest = max((len(shape.items) for shape in shapes), default=0)
    groups: dict[int, list[Shape]] = {}
    for shape in sorted(shapes, key=lambda shape: (-len(shape.items), shape.items)):
        if shape.items and _once(list(map(_kind, shape.items))):
            group = min(CLASSES - 1, int(log(len(shape.items) / longest) / log(SHORTER)))
            groups.setdefault(group, []).append(shape)
    rooms: list[Rooms] = []
    waiting = list(groups.values())
    while waiting and len(rooms) < CLASSES:
        room, excluded = _together(waiting.pop(0))
        rooms.append(Rooms(room, cells))
        waiting += [excluded] if excluded else []
    return rooms


def _together(shapes: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
    """Return the room for the batches of a class, the longest first, and the batches that are excluded."""
    kinds: list[tuple[int, tuple[str, ...]]] = []
    max_length = GROWTH * max(len(shape.items) for shape in shapes)
    for shape in shapes:
        shape_kinds = [_kind(item) for item in shape.items]
        longer = kinds if _holds_in_order(kinds, shape_kinds) else list(merged(kinds, shape_kinds))
        if len(longer) <= max_length and _once(longer):
            kinds = longer
    seen: list[list[Item]] = [[] for _ in kinds]
    by_fit: tuple[list[Shape], list[Shape]] = [], []
    for shape in shapes:
        by_fit[_holds_in_order(kinds, [_kind(item) for item in shape.items])].append(shape)
    excluded, shapes = by_fit
    for shape in shapes:
        places = iter(range(len(kinds)))
        for item in shape.items:
            seen[next(place for place in places if kinds[place] == _kind(item))].append(item)
    slices = frozenset.intersection(*(shape.slices for shape in shapes))
    every = list(zip(*((shape.listed, shape.unsliced_beside(slices)) for shape in shapes), strict=True))
    listed, rests = (tuple(room_for(numbers) for numbers in zip(*part, strict=True)) for part in every)
    room = Shape(
        tuple(_room(items) for items in seen if items),
        slices,
        frozenset.intersection(*(shape.first for shape in shapes)),
        frozenset[int]().union(*(shape.copies for shape in shapes)),
        listed,
        rests,
    )
    return room, excluded


def _room(items: Sequence[Item]) -> Item:
    """Return a slot for items of one kind. Calls with elements have a free rank behind them."""
    cell, stages, _, elements = items[0]
    calls = [item.calls for item in items]
    rooms = tuple(room_for([item.elements[s] for item in items]) for s in range(len(elements)))
    return Item(cell, stages, room_for(calls, int(bool(elements))) if any(calls) else 0, rooms)


def room_for(sizes: Sequence[int], extra: int = 0) -> int:
    """Return a room: the mean and `DEVIATIONS` above it, or the largest, and `extra`, rounded up.

    >>> room_for([10, 12, 14]), room_for([1]), room_for([16], 1), room_for([0, 0])
    (32, 16, 32, 0)
    """
    seen = np.array(sizes, np.float64)
    size = max(ceil(seen.mean() + DEVIATIONS * seen.std()), int(seen.max())) + extra
    return int(-(-size // ROOM_GRAIN)) * ROOM_GRAIN


def merged(first: Sequence[K], second: Sequence[K]) -> Iterator[K]:
    """Yield a sequence that has both in it: in their order, and what follows each other in both once.

    Where they differ, it goes on with the one that comes sooner to what the other has there.

    >>> list(merged([1, 2, 3], [1, 3, 4]))
    [1, 2, 3, 4]
    """
    i = j = 0
    while i < len(first) and j < len(second):
        if first[i] == second[j]:
            yield first[i]
            i, j = i + 1, j + 1
            continue
        in_right, in_left = _ahead(second, first[i], j), _ahead(first, second[j], i)
        if in_right < in_left:
            yield second[j]
            j += 1
        else:
            yield first[i]
            i += 1
    yield from first[i:]
    yield from second[j:]


def _ahead(sequence: Sequence[Hashable], kind: Hashable, start: int) -> float:
    """Return how far from a place on a kind comes; infinity if it does not."""
    try:
        return sequence.index(kind, start) - start
    except ValueError:
        return inf


FIRST_LEARNED = 8  # batches that classes are learned from, where nobody learned them before
SHAPES_KEPT = 512  # batches that are remembered, to learn classes from
GRAPHS = 32  # that are kept: of each class one for each block of staging, and for each kind of update
CAPTURE_TRIES = 3  # captures of one graph that may fail
MAX_STEPS = 2048  # steps of a batch that may have a class: graphs of deeper ones would take long to make


class Key(NamedTuple):
    """The values that the arguments of a graph's launches depend on."""

    rooms: Rooms
    table: int
    addresses: bytes
    update: Hashable
    # or "both" without a look at the gradients; "forward"; "backward" where results were read in between
    part: str = "whole"


class Room(NamedTuple):
    """A class made ready: all that its batches share."""

    tables: Directions  # the launch tables of a batch that takes all room
    steps: BothSteps  # of both directions, for so many rows
    table: RoomTable  # packs batches
    form: BatchForm  # of its batches


class Arranged(NamedTuple):
    """The launches of a batch, as the device is given them."""

    tables: Directions  # the launch tables; of a batch in a class, those that all of its batches share
    packed: PackedBatch  # all whole numbers of it
    steps: BothSteps  # forward and backward
    form: BatchForm  # the arrays that it makes
    rooms: Rooms | None = None  # its class, if it has one
    placed: Placed | None = None  # the batch numbered anew


class Captured:
    """The graphs of one phase of a model, on a device: of its routines, and their kernels."""

    def __init__(self, device: Device, bound: Bound, kernels: Sequence[Kernel]) -> None:
        self.device = device
        self.classes: list[Rooms] = []  # of batches, those of the fewest steps first
        self.hits = 0  # batches that fit into a class
        self.learned = 0  # how often classes were
        self.misses: Counter[str] = Counter()  # batches that fit into none, by reason
        self.milliseconds: list[float] = []  # how long it took to capture each graph
        self.failed = ""  # the error of the last capture that failed
        self._bound = bound
        self._kernels = kernels
        self._rooms: dict[Rooms, Room] = {}
        self._measures = Measures(bound.model.signatures, len(bound.model.arenas))
        self._sizes_of_classes = self._measures.classes(self.classes)
        self._seen: deque[Ints] = deque(maxlen=SHAPES_KEPT)  # sizes, see `Measures`
        self._wait = FIRST_LEARNED  # misses until classes are learned
        self._missed = 0
        start_in_each_process(self, Captured._start)

    def _start(self) -> None:
        self._graphs: OrderedDict[Key, Graph] = OrderedDict()
        self._failures: Counter[Key] = Counter()
        self._warm: set[tuple[Rooms, Hashable, str]] = set()

    # -- classes

    def arranged(self, schedule: Flat, ids: dict[tuple[int, int], Ints]) -> Arranged | None:
        """Return a batch placed in a capacity class, ready for its graph; None if it fits into none.

        It is placed in the smallest class that it fits into.

        Args:
            schedule: the schedule of the batch.
            ids: the ids of its feeds, as `pack` takes them.
        """
        if schedule.header[Tables.steps] > MAX_STEPS:
            self.misses[f"it has more than {MAX_STEPS:,} steps"] += 1
            return None
        sizes = self._measures.sizes(schedule)
        with self.device.lock:
            self._seen.append(sizes)
            number = self._measures.find(self._sizes_of_classes, sizes)
            if number < 0:
                self._miss(misfit(self.classes, self._measures.shape_of(sizes)))
                return None
            self.hits += 1
            rooms = self.classes[number]
            room = self._rooms.get(rooms) or self._room(rooms)
        placed, packed = room.table.filled(schedule, sizes, ids)
        return Arranged(room.tables, packed, room.steps, room.form, rooms, placed)

    def came_again(self) -> None:
        """Count a batch that was made ready before, and fits into no class when it runs once more."""
        with self.device.lock:
            self._miss("it was planned, and no class that it fits into is learned yet")

    def _room(self, rooms: Rooms) -> Room:
        """Return a class made ready, by a batch that takes all room."""
        tables = launch_tables(self._bound, rooms.full)
        table = RoomTable(self._bound, self._kernels, tables, rooms, self._measures)
        steps = steps_of_both(self._kernels, table.packed, spaced=True)
        form = form_of_class(self._bound, tables, table.packed, rooms)
        self._rooms[rooms] = Room(tables, steps, table, form)
        return self._rooms[rooms]

    def _miss(self, reason: str) -> None:
        """Count a batch that fits into no capacity class; after enough of them, learn new classes."""
        self.misses[reason] += 1
        self._missed += 1
        if self._missed >= self._wait:
            self._learn()
            self._wait *= 2  # new classes are new graphs: they become rarer

    def learn(self) -> None:
        """Set up capacity classes that fit the batches arranged so far, and count hits and misses anew."""
        with self.device.lock:
            self._learn()
            self.hits = 0
            self.misses.clear()

    def _learn(self) -> None:
        """Make classes of the batches that were seen last; classes that stay keep their graphs."""
        before = {rooms.shape: rooms for rooms in self.classes}  # they have graphs
        shapes = [*map(self._measures.shape_of, self._seen)]
        learned = sorted(learn(shapes, self._bound.model.signatures), key=lambda x: len(x.shape.items))
        self.classes = [before.get(rooms.shape, rooms) for rooms in learned]
        self._sizes_of_classes = self._measures.classes(self.classes)
        self._rooms = {rooms: room for rooms, room in self._rooms.items() if rooms in self.classes}
        self._missed = 0
        self.learned += 1

    def captures(self) -> Captures:
        with self.device.lock:
            rooms_in_use = [self._rooms[rooms] for rooms in self.classes if rooms in self._rooms]
            sizes = tuple(sorted(sum(map(len, room.steps)) for room in rooms_in_use))
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
        warm = key.rooms, key.update, key.part
        if graph is None and warm in self._warm and self._failures[key] < CAPTURE_TRIES:
            graph = self._capture(key, enqueue)
        if graph is None:
            self._warm.add(warm)
            enqueue()
            return False
        self._graphs.move_to_end(key)
        self.device.driver.replay(graph, self.device.stream)
        return True

    def _capture(self, key: Key, enqueue: Callable[[], None]) -> Graph | None:
        """Capture the launches that `enqueue` makes as a graph; return None if the driver fails."""
        driver, start = self.device.driver, time.perf_counter()
        with self.device.capturing() as stream:
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
