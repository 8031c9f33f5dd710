"""A driver that writes down what another driver is asked; `record_faults` and `calls` look at the record."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from foldbatch.engines.cuda.drivers.driver import Driver, Module, Product, Span, Touched
from foldbatch.engines.cuda.drivers.spans import array_at, span_of
from foldbatch.engines.cuda.recording.calls import (
    Call,
    Graph,
    Launch,
    Loaded,
    Memory,
    Order,
    Overwritten,
    Work,
    product_spans,
)
from foldbatch.engines.cuda.recording.clocks import Clocks
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
        self._clocks = Clocks()
        self._copied: list[_Copied] = []
        self._streams = self._events = 0
        self._kept: dict[int, list[Launch | Product]] = {}  # by stream that is captured

    def allocate(self, nbytes: int) -> Held:
        inner = self.driver.allocate(nbytes)
        self.calls.append(Memory("allocate", inner.pointer, nbytes))
        freed = partial(self.calls.append, Memory("free", inner.pointer, nbytes))
        return Held(inner, inner.pointer, nbytes, freed)

    def pinned(self, nbytes: int) -> Array:
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
        self._order(Order("synchronize", event.number))
        self.driver.synchronize(event.inner)
        self._look_at_copied()

    def _order(self, order: Order) -> None:
        self.calls.append(order)
        self._clocks.order(order)

    def _work(self, work: Work) -> int:
        self.calls.append(work)
        return self._clocks.work(work.stream)

    def copy_in(self, pointer: int, source: Array, stream: Numbered) -> None:
        span = span_of(source)
        time = self._work(Work("copy_in", stream.number, (span,), (Span(pointer, source.nbytes),)))
        owner = weakref.ref(owner_of(source))
        self._copied.append(_Copied(len(self.calls) - 1, owner, span, source.tobytes(), stream.number, time))
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

    def _launched(
        self, launch: Launch, stream: Numbered, touched: Callable[[], Touched] | None
    ) -> Callable[[], Touched] | None:
        """Write down a launch, or that a graph keeps it; return what tells the memory that it touches."""
        if stream.number in self._kept:
            self._kept[stream.number].append(launch)
            return None
        return self._ran(Work("launch", stream.number, (), (), launch), touched)

    def _ran(self, work: Work, touched: Callable[[], Touched] | None) -> Callable[[], Touched] | None:
        spans = Touched((), ()) if touched is None else touched()
        self._work(work._replace(reads=tuple(spans.reads), writes=tuple(spans.writes)))
        return None if touched is None else lambda: spans

    def blocks_together(self, function: Numbered, threads: tuple[int, int]) -> int:
        return self.driver.blocks_together(function.inner, threads)

    def multiply(self, product: Product, stream: Numbered) -> None:
        if stream.number in self._kept:
            self._kept[stream.number].append(product)
        else:
            self._work(Work("multiply", stream.number, *product_spans(product), product))
        self.driver.multiply(product, stream.inner)

    def multiply_at(self, product: Product, words: int, stream: Numbered) -> None:
        assert stream.number in self._kept, "where its matrices lie is told with the graph"
        self._kept[stream.number].append(product)
        self.driver.multiply_at(product, words, stream.inner)

    def begin_capture(self, stream: Numbered) -> None:
        self._kept[stream.number] = []
        self.driver.begin_capture(stream.inner)

    def end_capture(self, stream: Numbered) -> Numbered:
        inner = self.driver.end_capture(stream.inner)
        return Numbered(Graph(tuple(self._kept.pop(stream.number))), inner)

    def replay(self, graph: Numbered, stream: Numbered, touched: Callable[[], Touched] | None = None) -> None:
        told = self._ran(Work("replay", stream.number, (), (), graph.number), touched)
        self.driver.replay(graph.inner, stream.inner, told)

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
