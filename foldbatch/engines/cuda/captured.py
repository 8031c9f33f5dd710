"""Batches run by captured graphs: one launch for a whole step.

A graph has a launch for each slot of a capacity class, see `capacities`. Each runs ``at_<op>`` with the
address of the table and the number of a record; what else the kernel needs it reads there. The record of a
slot that a batch does not fill has a negative op, and its launch returns at once. Kernels take counts of rows
from the table, too, so they compute what is there with any number of blocks.

A graph is captured in a thread of its own when it is first wanted. Until it is there, the same kernels are
launched one by one.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from foldbatch.engines.cuda.capacities import Capacities, Item, Miss, Signature, fit, learn
from foldbatch.engines.cuda.control import THREADS, Call, Ops, records_of
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.drivers.driver import Function, Graph
from foldbatch.engines.cuda.interpreter import source
from foldbatch.engines.cuda.kernels import Kernel
from foldbatch.engines.cuda.launching import Launched
from foldbatch.engines.cuda.steps import BLOCKS
from foldbatch.engines.cuda.texts.records import RECORD
from foldbatch.engines.launch import Ints
from foldbatch.engines.report import Captures
from foldbatch.forks import start_in_each_process

FIRST = 8  # batches that classes are learned from, where nobody learned them before
KEPT = 512  # batches that are remembered, to learn classes from
GRAPHS = 32  # that are kept: of each class one for each block of staging, and for each kind of update
SIDE_BY_SIDE = 2  # blocks of a kernel of products on a multiprocessor

Node = tuple[Function, int, tuple[int, int], tuple[int, ...]]  # kernel, blocks, threads, arguments


@dataclass(frozen=True, slots=True)
class Placed:
    """Calls in the slots of a class; see `foldbatch.engines.cuda.launching.Arranged`.

    Attributes:
        records: ``[slots, RECORD] int64``; the op of an empty slot is -1.
        chosen: the class.
        places: the slots that are not empty.
    """

    records: Ints
    chosen: Capacities
    places: tuple[int, ...]


class _Key(NamedTuple):
    """What a graph's arguments depend on."""

    chosen: Capacities
    table: int
    update: Hashable


class Captured:
    """Runs batches by captured graphs; see `foldbatch.engines.cuda.launching.Launcher`.

    Args:
        device: where.
        kernels: of the phase.
        ops: of these kernels.
        tiles: the kernels of products.

    Attributes:
        classes: the classes of batches.
        hits: batches that fit into a class.
        misses: batches that did not, by reason.
        milliseconds: how long it took to capture each graph.
    """

    def __init__(self, device: Device, kernels: Sequence[Kernel], ops: Ops, tiles: str) -> None:
        self.device = device
        self.classes: list[Capacities] = []
        self.hits = 0
        self.misses: Counter[str] = Counter()
        self.milliseconds: list[float] = []
        self._ops = ops
        self._kernels = kernels
        self._tiles = tiles
        products = [task.tile for kernel in kernels for task in kernel.tasks if task.multiplied is not None]
        self._products = {ops.numbers[name] for name in products}
        self._seen: deque[Signature] = deque(maxlen=KEPT)
        self._wait = FIRST  # misses until classes are learned
        self._missed = 0
        start_in_each_process(self, Captured._start)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="foldbatch-capture")
        self._graphs: OrderedDict[_Key, Future[Graph]] = OrderedDict()

    @cached_property
    def _functions(self) -> Mapping[int, Function]:
        text = source(self._kernels, self._ops, self._tiles, walks=False)
        module = self.device.driver.load(text)
        return {number: module.function(f"at_{op.name}") for number, op in enumerate(self._ops.ops)}

    @cached_property
    def _stream(self) -> object:
        return self.device.driver.stream()

    # -- classes

    def arranged(
        self, forward: Sequence[Call], backward: Sequence[Call], numbers: Ints | None = None
    ) -> Placed | None:
        """Return calls in slots of a class, or None where they fit into none."""
        items = (tuple([Item(call.op, call.blocks) for call in calls]) for calls in (forward, backward))
        signature = Signature(*items)
        with self._lock:
            self._seen.append(signature)
            found = fit(self.classes, signature)
            if isinstance(found, Miss):
                self._miss(found.reason)
                return None
            self.hits += 1
        records = np.zeros((len(found.chosen.slots), RECORD), np.int64)
        records[:, 0] = -1
        records[list(found.places)] = records_of([*forward, *backward])
        return Placed(records, found.chosen, found.places)

    def _miss(self, reason: str) -> None:
        self.misses[reason] += 1
        self._missed += 1
        if self._missed >= self._wait:
            self._learn()
            self._wait *= 2  # new classes are new graphs: they become rarer

    def learn(self) -> None:
        """Learn classes from the batches that were arranged; batches are counted from here on."""
        with self._lock:
            self._learn()
            self.hits = 0
            self.misses.clear()

    def _learn(self) -> None:
        before = {(chosen.forward, chosen.backward): chosen for chosen in self.classes}  # they have graphs
        self.classes = [before.get((chosen.forward, chosen.backward), chosen) for chosen in learn(self._seen)]
        self._missed = 0

    def captures(self) -> Captures:
        """Return what is to be told of classes and graphs."""
        with self._lock:
            sizes = tuple(sorted(len(chosen.slots) for chosen in self.classes))
            return Captures(sizes, self.hits, dict(self.misses), tuple(self.milliseconds))

    # -- launching

    def launch(self, arranged: Placed, launched: Launched) -> int:
        """Run calls in slots, and then an update; return how many launches it took."""
        update, table = launched.update, launched.table.pointer
        key = _Key(arranged.chosen, table, None if update is None else update.key)
        driver, stream = self.device.driver, self.device.stream
        last = [] if update is None else update.launches(len(arranged.records))
        updating = [(function, blocks, threads, (table, *rest)) for function, blocks, threads, rest in last]
        all_slots = range(len(arranged.records))
        graph = self._graph(key, lambda: [*self._nodes(arranged.chosen, table, all_slots), *updating])
        if graph.done():
            driver.replay(graph.result(), stream, launched.touched)
            return 1
        nodes = [*self._nodes(arranged.chosen, table, arranged.places), *updating]
        for node in nodes:
            driver.launch(*node, stream, launched.touched)
        return len(nodes)

    def _nodes(self, chosen: Capacities, table: int, places: Sequence[int]) -> Iterator[Node]:
        slots = chosen.slots
        for place in places:
            op, capacity = slots[place]
            yield self._functions[op], self._blocks(op, capacity), (THREADS, 1), (table, place)

    def _blocks(self, op: int, capacity: int) -> int:
        """Return the blocks of a slot; kernels of products take larger tiles where blocks are few."""
        most = SIDE_BY_SIDE * self.device.driver.multiprocessors if op in self._products else BLOCKS
        return max(1, min(most, capacity))

    def _graph(self, key: _Key, nodes: Callable[[], Sequence[Node]]) -> Future[Graph]:
        with self._lock:
            graph = self._graphs.get(key)
            if graph is None:
                graph = self._graphs[key] = self._thread.submit(self._capture, nodes())
                if len(self._graphs) > GRAPHS:
                    self._graphs.popitem(last=False)
            self._graphs.move_to_end(key)
            return graph

    def _capture(self, nodes: Sequence[Node]) -> Graph:
        driver, start = self.device.driver, time.perf_counter()
        driver.begin_capture(self._stream)
        for node in nodes:
            driver.launch(*node, self._stream)
        graph = driver.end_capture(self._stream)
        self.milliseconds.append(1000 * (time.perf_counter() - start))
        return graph

    def wait(self) -> None:
        """Wait until all graphs that were asked for are captured."""
        with self._lock:
            graphs = list(self._graphs.values())
        for graph in graphs:
            graph.result()
