"""A driver that writes down what another driver is asked; `record_faults` and `calls` look at the record."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from foldbatch.engines.cuda.drivers.driver import Driver, Module, Product, Span, Touched
from foldbatch.engines.cuda.drivers.spans import array_at, joined, span_of
from foldbatch.engines.cuda.recording.calls import (
    Call,
    Captured,
    Graph,
    Kept,
    Launch,
    Loaded,
    Memory,
    Order,
    Overwritten,
    Unsafe,
    Work,
    product_spans,
)
from foldbatch.engines.cuda.recording.clocks import Clocks
from foldbatch.engines.cuda.recording.graphs import together
from foldbatch.engines.cuda.recording.held import Held, call_when_gone, owner_of
from foldbatch.params import Array


class Numbered(NamedTuple):
    """A stream or an event of the other driver, with its number in the record; or a kernel with its name."""

    number: Any
    inner: Any


class _Copied(NamedTuple):
    """Pinned memory as it was when a copy from it was enqueued."""

    call: int
    owner: weakref.ref[Any]
    span: Span
    content: bytes
    stream: int
    time: int


class _Capture(NamedTuple):
    """A stream that is captured: the number of its graph, who captures, and what is kept."""

    graph: int
    thread: int
    works: list[Work]


class RecordedGraph(NamedTuple):
    """A graph of the other driver, with what it holds."""

    inner: Any
    graph: Graph
    touched: Touched


class RecordedModule(NamedTuple):
    """Kernels of the other driver; see `driver.Module`."""

    inner: Module

    def function(self, name: str) -> Numbered:
        """Return a kernel by name."""
        return Numbered(name, self.inner.function(name))


class Recorder:
    """A driver that asks another one, and writes everything down; see `driver.Driver`.

    Args:
        driver: the other one.

    Attributes:
        calls: the record.
    """

    recording = True

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.name = driver.name
        self.multiprocessors = driver.multiprocessors
        self.calls: list[Call] = []
        self._captures: dict[int, _Capture] = {}  # by stream that is captured
        self._graphs = 0
        self._clocks = Clocks()
        self._copied: list[_Copied] = []
        self._streams = self._events = 0

    def allocate(self, nbytes: int) -> Held:
        self._is_safe("allocate")
        inner = self.driver.allocate(nbytes)
        self.calls.append(Memory("allocate", inner.pointer, nbytes))
        freed = partial(self.calls.append, Memory("free", inner.pointer, nbytes))
        return Held(inner, inner.pointer, nbytes, freed)

    def _is_safe(self, asked: str) -> None:
        """Write down that this thread captures, and asks for what it may not."""
        for capture in list(self._captures.values()):
            if capture.thread == threading.get_ident():
                self.calls.append(Unsafe(asked, capture.graph))

    def pinned(self, nbytes: int) -> Array:
        self._is_safe("pinned")
        array = self.driver.pinned(nbytes)
        span = span_of(array)
        self.calls.append(Memory("pin", *span))
        call_when_gone(array, partial(self.calls.append, Memory("unpin", *span)))
        return array

    def stream(self) -> Numbered:
        self._streams += 1
        return Numbered(self._streams - 1, self.driver.stream())

    def event(self) -> Numbered:
        self._events += 1
        return Numbered(self._events - 1, self.driver.event())

    def record(self, event: Numbered, stream: Numbered) -> None:
        self._order(Order("record", event.number, stream.number))
        self.driver.record(event.inner, stream.inner)

    def wait(self, stream: Numbered, event: Numbered) -> None:
        self._order(Order("wait", event.number, stream.number))
        self.driver.wait(stream.inner, event.inner)

    def synchronize(self, event: Numbered) -> None:
        self._is_safe("synchronize")
        self._order(Order("synchronize", event.number))
        self.driver.synchronize(event.inner)
        self._look_at_copied()

    def _order(self, order: Order) -> None:
        capture = self._captures.get(order.stream)
        if capture is not None:
            self.calls.append(Kept(capture.graph, order))
            return
        self.calls.append(order)
        self._clocks.order(order)

    def _work(self, work: Work) -> int | None:
        """Write work down, and return its number on its stream; None where it is kept for a graph."""
        capture = self._captures.get(work.stream)
        if capture is not None:
            capture.works.append(work)
            self.calls.append(Kept(capture.graph, work))
            return None
        self.calls.append(work)
        return self._clocks.work(work.stream)

    def copy_in(self, pointer: int, source: Array, stream: Numbered) -> None:
        span = span_of(source)
        time = self._work(Work("copy_in", stream.number, (span,), (Span(pointer, source.nbytes),)))
        if time is not None:
            owner, number = weakref.ref(owner_of(source)), len(self.calls) - 1
            self._copied.append(_Copied(number, owner, span, source.tobytes(), stream.number, time))
        self.driver.copy_in(pointer, source, stream.inner)

    def copy_out(self, target: Array, pointer: int, stream: Numbered) -> None:
        self._work(Work("copy_out", stream.number, (Span(pointer, target.nbytes),), (span_of(target),)))
        self.driver.copy_out(target, pointer, stream.inner)

    def copy(self, target: int, source: int, nbytes: int, stream: Numbered) -> None:
        self._work(Work("copy", stream.number, (Span(source, nbytes),), (Span(target, nbytes),)))
        self.driver.copy(target, source, nbytes, stream.inner)

    def fill(self, pointer: int, byte: int, nbytes: int, stream: Numbered) -> None:
        self._work(Work("fill", stream.number, (), (Span(pointer, nbytes),)))
        self.driver.fill(pointer, byte, nbytes, stream.inner)

    def load(self, source: str) -> RecordedModule:
        self._is_safe("load")
        self.calls.append(Loaded(source))
        return RecordedModule(self.driver.load(source))

    def launch(
        self,
        function: Numbered,
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
        stream: Numbered,
        touched: Callable[[], Touched] | None = None,
    ) -> None:
        launch = Launch(function.number, blocks, threads, tuple(arguments))
        told = self._launched(launch, stream, touched)
        self.driver.launch(function.inner, blocks, threads, arguments, stream.inner, told)

    def _launched(
        self, launch: Launch, stream: Numbered, touched: Callable[[], Touched] | None
    ) -> Callable[[], Touched] | None:
        """Write a launch down, and return what tells the memory that it touches now."""
        spans = Touched((), ()) if touched is None else touched()
        self._work(Work("launch", stream.number, tuple(spans.reads), tuple(spans.writes), launch))
        return None if touched is None else lambda: spans

    def blocks_together(self, function: Numbered, threads: tuple[int, int]) -> int:
        return self.driver.blocks_together(function.inner, threads)

    def launch_together(
        self,
        function: Numbered,
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
        stream: Numbered,
        touched: Callable[[], Touched] | None = None,
    ) -> None:
        launch = Launch(function.number, blocks, threads, tuple(arguments), together=True)
        told = self._launched(launch, stream, touched)
        self.driver.launch_together(function.inner, blocks, threads, arguments, stream.inner, told)

    def multiply(self, product: Product, stream: Numbered) -> None:
        self._work(Work("multiply", stream.number, *product_spans(product), product))
        self.driver.multiply(product, stream.inner)

    def multiply_at(self, product: Product, words: int, stream: Numbered) -> None:
        """See `driver.Driver`. The record holds where the addresses lie: the operands are not known yet."""
        self._work(Work("multiply_at", stream.number, (Span(words, 24),), (), product))
        self.driver.multiply_at(product, words, stream.inner)

    def begin_capture(self, stream: Numbered) -> None:
        self.driver.begin_capture(stream.inner)
        self._captures[stream.number] = _Capture(self._graphs, threading.get_ident(), [])
        self._graphs += 1

    def end_capture(self, stream: Numbered) -> RecordedGraph:
        inner = self.driver.end_capture(stream.inner)
        number, _, works = self._captures.pop(stream.number)
        touched = together(Touched(work.reads, work.writes) for work in works)
        self.calls.append(Captured(number, tuple(joined([*touched.reads, *touched.writes]))))
        kept = tuple(work.detail for work in works if isinstance(work.detail, Launch | Product))
        return RecordedGraph(inner, Graph(kept, number), touched)

    def replay(
        self, graph: RecordedGraph, stream: Numbered, touched: Callable[[], Touched] | None = None
    ) -> None:
        more = Touched((), ()) if touched is None else touched()
        reads, writes = together([graph.touched, more])
        self._work(Work("replay", stream.number, tuple(reads), tuple(writes), graph.graph))
        self.driver.replay(graph.inner, stream.inner, None if touched is None else lambda: more)

    def array(self, buffer: Held, shape: tuple[int, ...], dtype: str) -> Any:
        return buffer.lend(self.driver.array(buffer.inner, shape, dtype))

    def _look_at_copied(self) -> None:
        """Write down which copies may have found pinned memory that the host has changed in the meantime."""
        left = []
        for copied in self._copied:
            owner = copied.owner()
            if owner is None:
                continue
            now = array_at(copied.span.pointer, (copied.span.nbytes,), (1,), "uint8").tobytes()
            if now != copied.content:
                self.calls.append(Overwritten(copied.call))
            elif not self._clocks.host_knows(copied.stream, copied.time):
                left.append(copied)
        self._copied = left

    def finish(self) -> list[Call]:
        """Look a last time at pinned memory that copies may not have read yet, and return the record."""
        self._look_at_copied()
        return self.calls
