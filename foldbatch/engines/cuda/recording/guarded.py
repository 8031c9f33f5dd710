"""A driver that puts guards around memory of another driver, which tell when somebody writes out of bounds.

All memory begins as NaN, and guards are NaN: what reads out of bounds or too early shows in the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from foldbatch.engines.cuda.drivers.driver import (
    Driver,
    Event,
    Function,
    Module,
    Product,
    Span,
    Stream,
    Touched,
)
from foldbatch.engines.cuda.drivers.spans import joined, without
from foldbatch.engines.cuda.recording import graphs
from foldbatch.engines.cuda.recording.calls import product_spans
from foldbatch.engines.cuda.recording.held import Held
from foldbatch.params import Array

GUARD = 256  # bytes on each side
NAN = 0xFF  # a byte: floats of such bytes are NaN


class Guarded:
    """A driver that asks another one, and looks after its memory; see `driver.Driver`.

    Guards are looked at when the host waits, and when memory is freed.

    Args:
        driver: the other one; it does at once what it is asked, and its arrays are the memory itself.
        hides: whether a launch finds NaN everywhere but where it says to read or write, and an error is
            raised where it writes anything else. That takes time: all memory is copied for each launch.

    Raises:
        AssertionError: by `launch` and `synchronize`, where something was written out of bounds.
    """

    def __init__(self, driver: Driver, *, hides: bool = False) -> None:
        self.driver = driver
        self.name = driver.name
        self.multiprocessors = driver.multiprocessors
        self.hides = self.recording = hides
        self._kept: dict[Stream, list[Touched]] = {}  # by stream that is captured: what its work touches
        self._graphs = 0
        self._bytes: dict[int, Any] = {}  # by address: memory with its guards
        self._done: list[str] = []  # since guards were looked at
        self._damaged: list[str] = []

    def allocate(self, nbytes: int) -> Held:
        whole = nbytes + 2 * GUARD
        inner = self.driver.allocate(whole)
        pointer = inner.pointer + GUARD
        self._bytes[pointer] = memory = self.driver.array(inner, (whole,), "uint8")
        memory[...] = NAN
        return Held(inner, pointer, nbytes, partial(self._free, pointer))

    def _free(self, pointer: int) -> None:
        self._look_at(pointer)
        self._bytes.pop(pointer)[...] = NAN

    def _look_at(self, pointer: int) -> None:
        memory = self._bytes[pointer]
        for side, guard in (("before", memory[:GUARD]), ("behind", memory[-GUARD:])):
            if (guard != NAN).any():
                nbytes = len(memory) - 2 * GUARD
                self._damaged.append(
                    f"{side} the {nbytes} bytes at {pointer:#x}, by one of {self._done[-50:]}"
                )
                guard[...] = NAN

    def look(self) -> None:
        """Look at all guards.

        Raises:
            AssertionError: when one is damaged, or was when its memory was freed.
        """
        for pointer in list(self._bytes):
            self._look_at(pointer)
        self._done.clear()
        damaged, self._damaged = self._damaged, []
        assert not damaged, f"written out of bounds: {'; '.join(damaged)}"

    def pinned(self, nbytes: int) -> Array:
        return self.driver.pinned(nbytes)

    def stream(self) -> Stream:
        return self.driver.stream()

    def event(self) -> Event:
        return self.driver.event()

    def record(self, event: Event, stream: Stream) -> None:
        self.driver.record(event, stream)

    def wait(self, stream: Stream, event: Event) -> None:
        self.driver.wait(stream, event)

    def synchronize(self, event: Event) -> None:
        self.driver.synchronize(event)
        self.look()

    def copy_in(self, pointer: int, source: Array, stream: Stream) -> None:
        self._done.append("copy_in")
        self.driver.copy_in(pointer, source, stream)

    def copy_out(self, target: Array, pointer: int, stream: Stream) -> None:
        self.driver.copy_out(target, pointer, stream)

    def copy(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        self._done.append("copy")
        self._keep(stream, [Span(source, nbytes)], [Span(target, nbytes)])
        self.driver.copy(target, source, nbytes, stream)

    def fill(self, pointer: int, byte: int, nbytes: int, stream: Stream) -> None:
        self._done.append("fill")
        self._keep(stream, (), [Span(pointer, nbytes)])
        self.driver.fill(pointer, byte, nbytes, stream)

    def load(self, source: str) -> _Module:
        return _Module(self.driver.load(source))

    def launch(
        self,
        function: tuple[str, Function],
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
        stream: Stream,
        touched: Callable[[], Touched] | None = None,
    ) -> None:
        self._launch(self.driver.launch, function, blocks, threads, arguments, stream, touched)

    def blocks_together(self, function: tuple[str, Function], threads: tuple[int, int]) -> int:
        return self.driver.blocks_together(function[1], threads)

    def launch_together(
        self,
        function: tuple[str, Function],
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
        stream: Stream,
        touched: Callable[[], Touched] | None = None,
    ) -> None:
        self._launch(self.driver.launch_together, function, blocks, threads, arguments, stream, touched)

    def _launch(
        self,
        launch: Callable[..., None],
        function: tuple[str, Function],
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
        stream: Stream,
        touched: Callable[[], Touched] | None,
    ) -> None:
        name, inner = function
        run = partial(launch, inner, blocks, threads, arguments, stream, touched)
        if stream in self._kept:
            self._kept[stream].append(touched() if touched is not None and self.hides else Touched((), ()))
            run()
            return
        self._run(name, run, touched)

    def _run(self, name: str, run: Callable[[], None], touched: Callable[[], Touched] | None) -> None:
        """Run a kernel or a graph, and look at what it touches."""
        self._done.append(name)
        if not self.hides:
            run()
            return
        assert touched is not None, f"{name} does not say what it touches"
        reads, writes = (joined(spans) for spans in touched())
        everything = [Span(pointer - GUARD, len(memory)) for pointer, memory in self._bytes.items()]
        hidden = [(self._at(span), self._at(span).copy()) for span in without(everything, [*reads, *writes])]
        kept = [(self._at(span), self._at(span).copy()) for span in without(reads, writes)]
        for memory, _ in hidden:
            memory[...] = NAN
        run()
        assert all((memory == NAN).all() for memory, _ in hidden), (
            f"{name} writes what it does not say to touch"
        )
        assert all((memory == old).all() for memory, old in kept), f"{name} writes what it says to read"
        for memory, old in hidden:
            memory[...] = old

    def _at(self, span: Span) -> Any:
        pointer = max(start for start in self._bytes if start - GUARD <= span.pointer)
        start = span.pointer - pointer + GUARD
        return self._bytes[pointer][start : start + span.nbytes]

    def multiply(self, product: Product, stream: Stream) -> None:
        self._done.append("multiply")
        self._keep(stream, *product_spans(product))
        self.driver.multiply(product, stream)

    def multiply_at(self, product: Product, words: int, stream: Stream) -> None:
        self._done.append("multiply_at")
        self._keep(stream, [Span(words, 24)], ())
        self.driver.multiply_at(product, words, stream)

    def _keep(self, stream: Stream, reads: Sequence[Span], writes: Sequence[Span]) -> None:
        if stream in self._kept:
            self._kept[stream].append(Touched(reads, writes))

    def begin_capture(self, stream: Stream) -> None:
        self.driver.begin_capture(stream)
        self._kept[stream] = []

    def end_capture(self, stream: Stream) -> graphs.Held:
        touched = graphs.together(self._kept.pop(stream))
        self._graphs += 1
        return graphs.Held(self.driver.end_capture(stream), self._graphs - 1, touched)

    def replay(
        self, graph: graphs.Held, stream: Stream, touched: Callable[[], Touched] | None = None
    ) -> None:
        every = partial(graph.with_more, touched)
        self._run(f"graph {graph.number}", partial(self.driver.replay, graph.inner, stream, every), every)

    def array(self, buffer: Held, shape: tuple[int, ...], dtype: str) -> Any:
        nbytes = prod(shape) * np.dtype(dtype).itemsize
        memory = self._bytes[buffer.pointer][GUARD : GUARD + nbytes]
        return buffer.lend(memory.view(dtype).reshape(shape))


class _Module:
    def __init__(self, inner: Module) -> None:
        self._inner = inner

    def function(self, name: str) -> tuple[str, Function]:
        return name, self._inner.function(name)
