"""Watching a device: each call is timed on its stream, by events where the driver has a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.matrices import Multiplied
from foldbatch.engines.cuda.packing import PackedBatch
from foldbatch.engines.cuda.run import PhaseKernels, Ready
from foldbatch.engines.cuda.steps import LaunchStep
from foldbatch.engines.cuda.texts.kernel_text import CALLS
from foldbatch.engines.watching import named
from foldbatch.timelines import Span

# What a driver enqueues on a stream; everything else is not timed.
ENQUEUED = frozenset(("launch", "multiply", "copy_in", "copy_out", "copy", "fill", "replay"))
SHOWN = {"replay": "graph"}  # names of calls, where they are no kernel's
BY_EVENTS = "of the device, by events on its streams; rows of the host are of the host"


class TimingDriver:
    """A driver that asks another one, and marks the time before and after each call on a stream.

    Args:
        driver: the other one; see `foldbatch.engines.cuda.driver.Driver`.
        rows: the name of each stream's row, by the identity of the stream.
        clock: makes the marks, see `Driver.clock`.
        kernels: names of kernels, by the identity of the function.

    Attributes:
        driver: the other one.
        label: the name and the arguments of the spans that come, or None.
        marks: row, name, arguments and both marks of each call.
    """

    def __init__(self, driver: Any, rows: dict[int, str], clock: Any, kernels: dict[int, str]) -> None:
        self.driver = driver
        self._rows = rows
        self._clock = clock
        self._kernels = kernels
        self._kept: set[int] = set()  # streams whose calls are kept for a graph
        self.label: tuple[str, dict[str, int | str]] | None = None
        self.marks: list[tuple[str, str, dict[str, int | str], Any, Any]] = []

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self.driver, name)
        return partial(self._timed, name, asked) if name in ENQUEUED else asked

    def begin_capture(self, stream: Any) -> None:
        """Let calls be kept for a graph; see `Driver.begin_capture`. They do not run now: no time."""
        self._kept.add(id(stream))
        self.driver.begin_capture(stream)

    def end_capture(self, stream: Any) -> Any:
        """Return the graph; see `Driver.end_capture`."""
        self._kept.discard(id(stream))
        return self.driver.end_capture(stream)

    def _timed(self, name: str, asked: Any, *arguments: Any, **options: Any) -> Any:
        # a stream may be told by a number, as other arguments are: it is the last one but for a function
        given = [each for each in arguments if each is not None and not callable(each)]
        stream = options.get("stream", given[-1])
        if id(stream) not in self._rows or id(stream) in self._kept:
            return asked(*arguments, **options)
        before = self._clock.mark(stream)
        result = asked(*arguments, **options)
        after = self._clock.mark(stream)
        told, more = self.label or (self._kernels.get(id(arguments[0]), SHOWN.get(name, name)), {})
        if name.startswith("copy"):
            told, more = name, {"bytes": _bytes(arguments)}
        self.marks.append((self._rows[id(stream)], told, more, before, after))
        return result


class StreamsWatched:
    """Times what a device's streams do; while it is entered, the device has a `TimingDriver` driver.

    Args:
        device: what is watched. Other programs that use it meanwhile are in the timeline, too.

    Attributes:
        note: where the times come from.
    """

    note = BY_EVENTS

    def __init__(self, device: Device) -> None:
        self._device = device

    def __enter__(self) -> Self:
        device = self._device
        with device.lock:
            device.synchronize()
            self._clock = device.driver.clock(device.stream)
            rows = {id(device.copies): "copies", id(device.stream): "compute"}
            self._timed = TimingDriver(device.driver, rows, self._clock, device.names())
            device.driver = self._timed  # what is not timed is the other one's
        return self

    def __exit__(self, *error: object) -> None:
        with self._device.lock:
            self._device.driver = _without(self._device.driver, self._timed)

    def watched(self, ready: Ready, part: int) -> Ready:
        """Return a batch whose steps have names, cells, levels and rows."""
        walker: Any = _Labelled(ready.phase, ready.packed, self._timed)
        return replace(ready, phase=replace(ready.phase, walker=walker))

    def spans(self) -> Sequence[Span]:
        """Wait for the device, and return what it did."""
        with self._device.lock:
            self._device.synchronize()
            at = self._clock.seconds
            made = [
                Span(row, name, at(before), max(0.0, at(after) - at(before)), more)
                for row, name, more, before, after in self._timed.marks
            ]
        return sorted(made, key=lambda span: (span.row != "copies", span.start))


def _without(driver: Any, timed: TimingDriver) -> Any:
    """Return a driver without one of those that time it: another thread may have begun to watch meanwhile."""
    if driver is timed:
        return timed.driver
    driver.driver = _without(driver.driver, timed)
    return driver


class _Labelled:
    """A walker that tells what each step is, then enqueues it; see `foldbatch.engines.cuda.steps.Walker`."""

    def __init__(self, phase: PhaseKernels, packed: PackedBatch, timed: TimingDriver) -> None:
        self._phase = phase
        self._numbers = packed.numbers
        self._timed = timed
        self._levels: dict[int, int] = {}  # by the place of its record
        for direction in (packed.forward, packed.backward):
            if direction is not None:
                self._levels |= {place: level for level, place in enumerate(direction.levels)}

    def run(self, steps: Sequence[LaunchStep], table: int, addresses: Sequence[int]) -> None:
        """Enqueue steps."""
        for step in steps:
            at = step.arguments[1]
            name, cell = named(self._phase.bound, step.row[0])
            product = step.task.multiplied
            rows = int(self._numbers[at + CALLS])
            arguments: dict[str, int | str] = {
                "cell": cell,
                "level": self._levels[at] - step.row[1],
                "rows": rows,
            }
            if product is not None:
                arguments["product"] = _extents(product, step)
                name = f"{name} product"
            self._timed.label = name, arguments
            try:
                self._phase.walker.run([step], table, addresses)
            finally:
                self._timed.label = None


def _extents(product: Multiplied, step: LaunchStep) -> str:
    m, k, count = step.extents
    return f"[{m}, {k}] x [{k}, {product.n}]" + (f", {count} times" if count != 1 else "")


def _bytes(arguments: Sequence[Any]) -> int:
    """Return how many bytes a copy moves: those of the host's array, or the third argument."""
    arrays = [each.nbytes for each in arguments if hasattr(each, "nbytes")]
    return int(arrays[0] if arrays else arguments[2])
