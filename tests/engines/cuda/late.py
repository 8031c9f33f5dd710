"""A driver that does work later than it is asked, in any order that streams and events allow.

What a program forgets to wait for goes wrong on it every time, and not once in a while as on a GPU.
"""

from __future__ import annotations

import random
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from foldbatch.engines.cuda.driver import DeviceBuffer, Driver, Function, Graph, MatrixProduct
from foldbatch.params.parameters import Array

POISON = 0xFF  # a byte: floats of such bytes are NaN


class Held:
    """A buffer that stands for one of another driver; see `driver.DeviceBuffer`.

    Args:
        inner: the other driver's buffer.
        pointer: the address of this one, which lies in `inner`.
        nbytes: its size.
        freed: called when nobody holds this buffer any more.
    """

    __slots__ = ("__weakref__", "inner", "nbytes", "pointer")

    def __init__(self, inner: DeviceBuffer, pointer: int, nbytes: int, freed: Callable[[], object]) -> None:
        self.inner = inner
        self.pointer = pointer
        self.nbytes = nbytes
        call_when_gone(self, freed)

    def lend(self, array: Any) -> Any:
        weakref.finalize(array, lambda buffer: None, self).atexit = False
        return array


def call_when_gone(thing: object, gone: Callable[[], object]) -> None:
    """Call a function when nobody holds `thing` any more; for an array, nor a view of it."""
    weakref.finalize(owner_of(thing), gone).atexit = False


def owner_of(thing: Any) -> Any:
    return thing.base if isinstance(thing, np.ndarray) and isinstance(thing.base, np.ndarray) else thing


class Mark:
    """A place in the queue of a stream, which an event stands for.

    Attributes:
        queue: where it was enqueued.
        passed: whether all before it is done.
    """

    __slots__ = ("passed", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.passed = False


class Queue:
    """A stream: what is enqueued, in order. An item is work, a mark of its own, or another's to wait for.

    Attributes:
        inner: the stream of the other driver that does the work, or keeps it while this one is captured.
        captured: whether it is.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.captured = False
        self._items: deque[Mark | Callable[[], None]] = deque()

    def add(self, item: Mark | Callable[[], None]) -> None:
        self._items.append(item)

    def can_run(self) -> bool:
        """Whether the next item need not wait for another stream."""
        if not self._items:
            return False
        item = self._items[0]
        return not isinstance(item, Mark) or item.queue is self or item.passed

    def run(self) -> None:
        """Do the next item; what it waits for first."""
        item = self._items[0]
        if isinstance(item, Mark):
            if item.queue is self:
                item.passed = True
            item.queue.run_to(item)
        else:
            item()
        self._items.popleft()

    def run_to(self, mark: Mark) -> None:
        while not mark.passed:
            self.run()

    def run_all(self) -> None:
        while self._items:
            self.run()

    def pass_marks(self) -> None:
        while self._items and isinstance(self._items[0], Mark) and self.can_run():
            self.run()

    def __bool__(self) -> bool:
        return bool(self._items)


class Event:
    """An event: the place where it was recorded last."""

    __slots__ = ("mark",)

    def __init__(self) -> None:
        self.mark: Mark | None = None


class Late:
    """A driver that asks another one, later; see `driver.Driver`.

    Args:
        driver: the other one; it does at once what it is asked.
        eagerness: of each stream, how likely it does all that it can after something is enqueued anywhere,
            from 0: only when the host waits for it, to 1: always. Streams take turns.
        seed: of the choices.
    """

    def __init__(self, driver: Driver, eagerness: Sequence[float] = (0,), seed: int = 0) -> None:
        self.driver = driver
        self.name, self.identity = driver.name, driver.identity
        self._eagerness = eagerness
        self._random = random.Random(seed)
        self._queues: list[Queue] = []
        self._freed: list[Any] = []  # kept while enqueued work may use it
        self._read: list[Any] = []  # pinned memory that enqueued copies read

    def _enqueue(self, queue: Queue, item: Mark | Callable[[], None]) -> None:
        if queue.captured:
            assert not isinstance(item, Mark), "no event can be part of a graph"
            item()
            return
        queue.add(item)
        for number, each in enumerate(self._queues):
            eagerness = self._eagerness[number % len(self._eagerness)]
            if self._random.random() < eagerness:
                while each.can_run():
                    each.run()
        self._forget()

    def _forget(self) -> None:
        for queue in self._queues:
            queue.pass_marks()
        if not any(self._queues):
            self._freed.clear()

    def allocate(self, nbytes: int) -> Held:
        inner = self.driver.allocate(nbytes)
        return Held(inner, inner.pointer, nbytes, partial(self._freed.append, inner))

    def pinned(self, nbytes: int) -> Array:
        array = self.driver.pinned(nbytes)
        array[...] = POISON
        return array

    def stream(self) -> Queue:
        self._queues.append(Queue(self.driver.stream()))
        return self._queues[-1]

    def event(self) -> Event:
        return Event()

    def record(self, event: Event, stream: Queue) -> None:
        event.mark = Mark(stream)
        self._enqueue(stream, event.mark)

    def wait(self, stream: Queue, event: Event) -> None:
        if event.mark is not None and event.mark.queue is not stream:
            self._enqueue(stream, event.mark)

    def synchronize(self, event: Event) -> None:
        if event.mark is not None:
            event.mark.queue.run_to(event.mark)
        self._forget()

    def completed(self, event: Event) -> bool:
        return event.mark is None or event.mark.passed

    def copy_in(self, pointer: int, source: Array, stream: Queue) -> None:
        read = owner_of(source)
        self._read.append(read)

        def copy() -> None:
            self.driver.copy_in(pointer, source, stream.inner)
            self._read[:] = [array for array in self._read if array is not read]

        self._enqueue(stream, copy)

    def copy_out(self, target: Array, pointer: int, stream: Queue) -> None:
        if not any(array is owner_of(target) for array in self._read):
            target[...] = POISON  # what a host finds that does not wait
        self._enqueue(stream, partial(self.driver.copy_out, target, pointer, stream.inner))

    def copy(self, target: int, source: int, nbytes: int, stream: Queue) -> None:
        self._enqueue(stream, partial(self.driver.copy, target, source, nbytes, stream.inner))

    def fill(self, pointer: int, byte: int, nbytes: int, stream: Queue) -> None:
        self._enqueue(stream, partial(self.driver.fill, pointer, byte, nbytes, stream.inner))

    def clock(self, stream: Any) -> Any:
        return self.driver.clock(stream.inner)

    def load(self, source: str) -> Callable[[str], Function]:
        return self.driver.load(source)

    def launch(
        self,
        function: Function,
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
        stream: Queue,
    ) -> None:
        told = tuple(arguments)
        self._enqueue(stream, partial(self.driver.launch, function, blocks, threads, told, stream.inner))

    def multiply(self, product: MatrixProduct, stream: Queue) -> None:
        self._enqueue(stream, partial(self.driver.multiply, product, stream.inner))

    def begin_capture(self, stream: Queue) -> None:
        stream.run_all()  # what was enqueued before is no part of the graph
        self.driver.begin_capture(stream.inner)
        stream.captured = True

    def end_capture(self, stream: Queue) -> Graph:
        stream.captured = False
        return self.driver.end_capture(stream.inner)

    def replay(self, graph: Graph, stream: Queue) -> None:
        self._enqueue(stream, partial(self.driver.replay, graph, stream.inner))

    def array(self, buffer: Held, shape: tuple[int, ...], dtype: str) -> Any:
        for queue in self._queues:
            queue.run_all()  # the host may look at it any time
        return buffer.lend(self.driver.array(buffer.inner, shape, dtype))
