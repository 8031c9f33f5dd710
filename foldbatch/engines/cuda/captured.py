"""Batches run by captured graphs: one launch for a whole step.

A graph has a launch for each slot of a capacity class, see `capacities`. Each runs ``at_<op>`` with the
address of the table and the number of a record; what else the kernel needs it reads there. The record of a
slot that a batch does not fill has a negative op, and its launch returns at once. Kernels take counts of rows
from the table, too, so they compute what is there with any number of blocks.

A product that is too wide for our own kernels, by what a caller says, is left to cuBLAS: it has a slot of its
own kind, where the graph is cut in two.

A graph is captured in a thread of its own when it is first wanted. Until it is there, the same kernels are
launched one by one.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import NamedTuple

import numpy as np

from foldbatch.engines.cuda.capacities import Capacities, Item, Miss, Signature, fit, learn
from foldbatch.engines.cuda.control import THREADS, Call, Ops, records_of
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.drivers.driver import Function, Graph
from foldbatch.engines.cuda.interpreter import source
from foldbatch.engines.cuda.kernels import Kernel
from foldbatch.engines.cuda.launching import Launched
from foldbatch.engines.cuda.steps import BLOCKS, Step
from foldbatch.engines.cuda.texts.records import RECORD
from foldbatch.engines.launch import Ints
from foldbatch.engines.report import Captures
from foldbatch.forks import start_in_each_process

FIRST = 8  # batches that classes are learned from, where nobody learned them before
KEPT = 512  # batches that are remembered, to learn classes from
GRAPHS = 32  # that are kept: of each class one for each block of staging, and for each kind of update
SIDE_BY_SIDE = 2  # blocks of a kernel of products on a multiprocessor

WIDE = 1 << 32  # added to the op of a slot whose calls run straight


class Node(NamedTuple):
    """A launch: a kernel, its blocks, the threads of each, and its arguments."""

    function: Function
    blocks: int
    threads: tuple[int, int]
    arguments: tuple[int, ...]


Nodes = Sequence[Node | int]  # a slot's number stands for a call that runs straight
Pieces = Sequence[Graph | int]  # graphs, with such slots between


@dataclass(frozen=True, slots=True)
class Placed:
    """Calls in the slots of a class; see `foldbatch.engines.cuda.launching.Arranged`.

    Attributes:
        records: ``[slots, RECORD] int64``; the op of an empty slot is -1.
        chosen: the class.
        places: the slots that are not empty.
        straight: by slot, the steps that run straight.
    """

    records: Ints
    chosen: Capacities
    places: tuple[int, ...]
    straight: Mapping[int, Step]


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
        wide: whether a product runs straight.

    Attributes:
        classes: the classes of batches.
        hits: batches that fit into a class.
        misses: batches that did not, by reason.
        milliseconds: how long it took to capture each graph.
        failed: the error of a capture that failed; no other is tried then.
    """

    def __init__(
        self,
        device: Device,
        kernels: Sequence[Kernel],
        ops: Ops,
        tiles: str,
        wide: Callable[[Call], bool] = lambda call: False,
    ) -> None:
        self.device = device
        self.classes: list[Capacities] = []
        self.hits = 0
        self.misses: Counter[str] = Counter()
        self.milliseconds: list[float] = []
        self.failed = ""
        self._ops = ops
        self._kernels = kernels
        self._tiles = tiles
        self._wide = wide
        products = [task.tile for kernel in kernels for task in kernel.tasks if task.multiplied is not None]
        self._products = {ops.numbers[name] for name in products}
        self._seen: deque[Signature] = deque(maxlen=KEPT)
        self._wait = FIRST  # misses until classes are learned
        self._missed = 0
        start_in_each_process(self, Captured._start)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="foldbatch-capture")
        self._graphs: OrderedDict[_Key, Future[Pieces | None]] = OrderedDict()

    @cached_property
    def _functions(self) -> Mapping[int, Function]:
        text = source(self._kernels, self._ops, self._tiles)
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
        signature = Signature(*(tuple(map(self._item, calls)) for calls in (forward, backward)))
        with self._lock:
            self._seen.append(signature)
            found = fit(self.classes, signature)
            if isinstance(found, Miss):
                self._miss(found.reason)
                return None
            self.hits += 1
        slots, calls = found.chosen.slots, [*forward, *backward]
        records = np.zeros((len(slots), RECORD), np.int64)
        records[:, 0] = -1
        records[list(found.places)] = records_of(calls)
        straight = {
            place: call.step
            for place, call in zip(found.places, calls, strict=True)
            if slots[place].op >= WIDE and call.step is not None
        }
        return Placed(records, found.chosen, found.places, straight)

    def _item(self, call: Call) -> Item:
        wide = call.op in self._products and self._wide(call)
        return Item(call.op + WIDE * wide, call.blocks)

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
            reasons = (f"no graph is captured, as one failed: {self.failed}",) if self.failed else ()
            return Captures(sizes, self.hits, dict(self.misses), tuple(self.milliseconds), reasons)

    # -- launching

    def launch(self, arranged: Placed, launched: Launched) -> int:
        """Run calls in slots, and then an update; return how many launches it took."""
        update, table = launched.update, launched.table.pointer
        key = _Key(arranged.chosen, table, None if update is None else update.key)
        driver, stream = self.device.driver, self.device.stream
        last = [] if update is None else update.launches(len(arranged.records))
        updating = [
            Node(function, blocks, threads, (table, *rest)) for function, blocks, threads, rest in last
        ]
        nodes = partial(self._nodes, arranged.chosen, table)
        graph = self._graph(key, lambda: [*nodes(range(len(arranged.records))), *updating])
        count = 0
        pieces = graph.result() if graph is not None and graph.done() else None
        for piece in [*nodes(arranged.places), *updating] if pieces is None else pieces:
            if isinstance(piece, Node):
                driver.launch(*piece, stream, launched.touched)
            elif not isinstance(piece, int):
                driver.replay(piece, stream, launched.touched)
            elif piece in arranged.straight:
                launched.straight(arranged.straight[piece])
            else:
                continue
            count += 1
        return count

    def _nodes(self, chosen: Capacities, table: int, places: Sequence[int]) -> Iterator[Node | int]:
        slots = chosen.slots
        for place in places:
            op, capacity = slots[place]
            if op >= WIDE:
                yield place
            else:
                yield Node(self._functions[op], self._blocks(op, capacity), (THREADS, 1), (table, place))

    def _blocks(self, op: int, capacity: int) -> int:
        """Return the blocks of a slot; kernels of products take larger tiles where blocks are few."""
        most = SIDE_BY_SIDE * self.device.driver.multiprocessors if op in self._products else BLOCKS
        return max(1, min(most, capacity))

    def _graph(self, key: _Key, nodes: Callable[[], Nodes]) -> Future[Pieces | None] | None:
        """Return a graph that is captured, or will be; None where a card has refused one before."""
        with self._lock:
            if self.failed:
                return None
            graph = self._graphs.get(key)
            if graph is None:
                graph = self._graphs[key] = self._thread.submit(self._capture, nodes())
                if len(self._graphs) > GRAPHS:
                    self._graphs.popitem(last=False)
            self._graphs.move_to_end(key)
            return graph

    def _capture(self, nodes: Nodes) -> Pieces | None:
        try:
            return self._captured(nodes)
        except Exception as error:  # noqa: BLE001 - training goes on, kernels are launched one by one
            self.failed = f"{type(error).__name__}: {error}"
            with suppress(Exception):
                self.device.driver.end_capture(self._stream)
            return None

    def _captured(self, nodes: Nodes) -> Pieces:
        driver, start = self.device.driver, time.perf_counter()
        pieces: list[Graph | int] = []
        for straight, group in groupby(nodes, key=lambda node: isinstance(node, int)):
            if straight:
                pieces += group
                continue
            driver.begin_capture(self._stream)
            for node in group:
                if isinstance(node, Node):
                    driver.launch(*node, self._stream)
            pieces.append(driver.end_capture(self._stream))
        self.milliseconds.append(1000 * (time.perf_counter() - start))
        return pieces

    def wait(self) -> None:
        """Wait until all graphs that were asked for are captured."""
        with self._lock:
            graphs = list(self._graphs.values())
        for graph in graphs:
            graph.result()
