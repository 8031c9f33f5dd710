"""Watching: which kernels of a batch ran when, for a timeline. Who watches nothing pays nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from foldbatch.engines.launch import HEAD, LaunchTable
from foldbatch.engines.memory import Memory
from foldbatch.engines.ranges import OutOfRangeError
from foldbatch.timelines.timeline import Span

if TYPE_CHECKING:
    from foldbatch.engines.arrays import Kernels, Ready


class Watch(Protocol):
    """What collects spans while batches run."""

    note: str  # where the times come from

    def watched(self, ready: Any, part: int) -> Any:
        """Return what an engine made ready of a part of a batch, so that its kernels are timed."""
        ...

    def spans(self) -> Sequence[Span]:
        """Wait until all is done, and return what ran."""
        ...


class NothingWatched:
    """For engines that have no kernels; see `Watch`."""

    note = "of the host"

    def watched(self, ready: Any, part: int) -> Any:
        """Return what is ready as it is."""
        return ready

    def spans(self) -> Sequence[Span]:
        """Return nothing."""
        return ()


class LevelsWatched:
    """For engines of arrays: each level of a launch is walked and timed on its own; see `Watch`."""

    note = "of the host; levels are called one by one, which takes longer than a step that nobody watches"

    def __init__(self) -> None:
        self._spans: list[Span] = []  # appended to by all threads

    def watched(self, ready: Ready, part: int) -> Ready:
        """Return a part of a batch whose walk is timed."""
        walk = partial(self._walk, ready.kernels, f"part {part + 1}")
        return replace(ready, kernels=replace(ready.kernels, walk=walk))

    def _walk(self, kernels: Kernels, row: str, table: LaunchTable, memory: Memory) -> None:
        for number, launch in enumerate(table.launches):
            kernel, first, stop = launch[:HEAD].tolist()
            name, cell = named(kernels.bound, kernel)
            for level in range(first, stop):
                one = launch[np.newaxis].copy()
                one[0, 1:HEAD] = level, level + 1
                start = time.perf_counter()
                try:
                    kernels.walk(replace(table, launches=one), memory)
                except OutOfRangeError as error:
                    error.launch = number
                    raise
                seconds = time.perf_counter() - start
                rows = int(table.bounds[level, 1] - table.bounds[level, 0])
                arguments = {"cell": cell, "level": level - first, "rows": rows}
                self._spans.append(Span(row, name, start, seconds, arguments))

    def spans(self) -> Sequence[Span]:
        """Return what ran so far, part by part: threads add theirs in any order."""
        return sorted(self._spans, key=lambda span: (len(span.row), span.row))


def named(bound: Any, kernel: int) -> tuple[str, str]:
    """Return the name of a kernel of a `foldbatch.engines.bindings.Bound`, and that of its cell.

    An engine may have more kernels than the model has stages: those that are not of one cell alone.
    """
    if kernel >= len(bound.keys):
        return "products of known rows", ""
    cell = bound.model.cells[bound.keys[kernel].cell].name
    return f"{cell} {bound.routines[kernel].name}", cell
