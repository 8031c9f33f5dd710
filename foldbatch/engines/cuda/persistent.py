"""One kernel a direction: blocks that run side by side walk the records, with barriers of the grid between.

A call that is too wide for it, by what a caller says, runs straight: the walk before it ends, and another one
begins behind it, in the same stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from foldbatch.engines.cuda.barriers import waits
from foldbatch.engines.cuda.control import Call, Ops, records_of
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.interpreter import source
from foldbatch.engines.cuda.kernels import Kernel
from foldbatch.engines.cuda.launching import Launched
from foldbatch.engines.cuda.steps import Step
from foldbatch.engines.cuda.texts.records import BARRIERS
from foldbatch.engines.cuda.texts.walking import BARRIER_AFTER
from foldbatch.engines.launch import Ints

THREADS = (256, 1)
MOST = 8  # launches but for the update, which takes four at most; each has two words for its barriers
KNOWN = 1024  # sequences of calls whose barriers are remembered
assert 2 * MOST <= BARRIERS, "words for all barriers"


class Stretch(NamedTuple):
    """Calls that are one launch.

    Attributes:
        first: the first record.
        last: the one after the last.
        blocks: that can work side by side on one of them, at most.
        step: what runs straight instead; None for a walk.
    """

    first: int
    last: int
    blocks: int
    step: Step | None = None


class Walks(NamedTuple):
    """Calls as records, and the launches that run them.

    Attributes:
        records: ``[calls, RECORD] int64``.
        stretches: in order.
    """

    records: Ints
    stretches: Sequence[Stretch]


class Persistent:
    """A launcher that walks records in few kernels; see `foldbatch.engines.cuda.launching.Launcher`.

    Args:
        device: where.
        kernels: of the phase.
        ops: of these kernels.
        tiles: the kernels of products.
        wide: whether a product runs straight.
    """

    def __init__(
        self,
        device: Device,
        kernels: Sequence[Kernel],
        ops: Ops,
        tiles: str,
        wide: Callable[[Call], bool] = lambda call: False,
    ) -> None:
        self._device = device
        self._kernels = kernels
        self._ops = ops
        self._wide = wide
        self._known: dict[tuple[object, ...], list[bool]] = {}
        text = source(kernels, ops, tiles, walks=True)
        self._walk = device.driver.load(text).function("walk")
        self._blocks = device.driver.blocks_together(self._walk, THREADS)

    def arranged(
        self, forward: Sequence[Call], backward: Sequence[Call], numbers: Ints | None = None
    ) -> Walks:
        """Return the calls of both directions as stretches."""
        calls = [*forward, *backward]
        after = self._barriers(calls)
        records = records_of(calls)
        records[:, 0] += np.where(after, BARRIER_AFTER, 0)
        stretches = _stretches(calls, len(forward), self._wide)
        if len(stretches) > MOST:
            stretches = _stretches(calls, len(forward), lambda call: False)
        return Walks(records, stretches)

    def _barriers(self, calls: Sequence[Call]) -> list[bool]:
        """Return which calls have a barrier behind them, worked out once for batches of the same calls."""
        key = tuple([call.op if call.step is not None else (call.op, *call.arguments[:1]) for call in calls])
        if key not in self._known:
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[key] = [*waits(calls, self._ops, self._kernels)[1:], False]
        return self._known[key]

    def launch(self, arranged: Walks, launched: Launched) -> int:
        """Run the stretches, and then an update."""
        driver, stream, touched = self._device.driver, self._device.stream, launched.touched
        table, words = launched.table.pointer, launched.words
        count = len(arranged.stretches)
        for stretch in arranged.stretches:
            if stretch.step is not None:
                launched.straight(stretch.step)
                continue
            blocks = min(self._blocks, stretch.blocks)
            arguments = table, stretch.first, stretch.last, words
            driver.launch_together(self._walk, blocks, THREADS, arguments, stream, touched)
            words += 16
        if launched.update is not None:
            launches = launched.update.launches(len(arranged.records))
            for function, blocks, threads, rest in launches:
                driver.launch(function, blocks, threads, (table, *rest), stream, touched)
            count += len(launches)
        return count


def _stretches(calls: Sequence[Call], begin: int, wide: Callable[[Call], bool]) -> list[Stretch]:
    """Return calls cut where a product is wide, and where the backward pass begins."""
    made: list[Stretch] = []
    first = 0
    for number, call in enumerate(calls):
        straight = call.step is not None and call.step.task.multiplied is not None and wide(call)
        if number > first and (straight or number == begin):
            made.append(_walked(calls, first, number))
            first = number
        if straight:
            made.append(Stretch(number, number + 1, 0, call.step))
            first = number + 1
    if first < len(calls):
        made.append(_walked(calls, first, len(calls)))
    return made


def _walked(calls: Sequence[Call], first: int, last: int) -> Stretch:
    return Stretch(first, last, max(call.blocks for call in calls[first:last]))
