"""Profiling: a batch run a few times, with the times of all that host, threads and device do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from foldbatch.blocks.values import refuse_no_count
from foldbatch.capacities import learning
from foldbatch.engines.collected import sum_losses
from foldbatch.engines.planned import Planned
from foldbatch.engines.runner import Runner
from foldbatch.engines.watching import NothingWatched, Watch
from foldbatch.errors import BlockTypeError
from foldbatch.scheduler.trace import Trace
from foldbatch.timelines.spans import Span
from foldbatch.timelines.timeline import Timeline
from foldbatch.traced import several_of
from foldbatch.types import describe_value

HOST = "host"


class Profiled:
    """A program that tells what runs when."""

    _runner: Runner
    _trace_all: Callable[[Iterable[Any] | Planned], list[Trace]]

    def profile(
        self, examples: Iterable[Any] | Planned, *, steps: int = 3, training: bool = True
    ) -> Timeline:
        """Return a timeline of one batch that is run several times: what ran when, for how long.

        Each step plans the batch anew: it traces the examples (trees are remembered), merges the traces,
        makes the schedule and readies the engine's table. Then it runs forward and, while training, backward.
        Before that the batch runs unwatched, so that kernels, memory and graphs are there. The host waits for
        a device after the last step only. Parameters are not changed. The rows are ``host``; on ``numpy`` and
        ``numba``, whose levels are called one by one here, a row for each part of the batch that has a
        thread; on ``cuda`` the streams ``copies`` and ``compute``, timed by events.

        Args:
            examples: the batch. A single example need not be in a list, unless it is a list or tuple itself.
            steps: how often it runs.
            training: whether it runs forward and backward, else forward alone as `run` does.

        Raises:
            ExampleError: when an example does not fit the block; nothing has run then.
            BlockValueError: when `steps` is no whole number of 1 or more.
            BlockTypeError: when `training` is not a bool.

        >>> import foldbatch as fb
        >>> program = fb.compile(fb.Map(fb.Scalar()) >> fb.Sum() >> fb.Loss(), "numpy")
        >>> timeline = program.profile([[1, 2], [3]], steps=2)
        >>> [span.name for span in timeline.spans if span.row == "host"][:6]
        ['trace', 'merge', 'schedule', 'ready', 'forward', 'backward']
        """
        refuse_no_count("profile steps", steps, 1)
        if not isinstance(training, bool):
            fix = "True runs forward and backward"
            raise BlockTypeError("profile training", "True or False", describe_value(training), fix)
        given = several_of(examples)
        return _profiled(self._runner, lambda: self._trace_all(given), steps, training=training)


@dataclass(slots=True)
class _Host:
    """The spans of the host.

    Attributes:
        spans: so far.
        step: the number of the step under way.
    """

    spans: list[Span] = field(default_factory=list)
    step: int = 0

    @contextmanager
    def doing(self, name: str) -> Iterator[None]:
        """Note what is done within."""
        start = time.perf_counter()
        yield
        self.note(name, start, time.perf_counter() - start)

    def note(self, name: str, start: float, seconds: float) -> None:
        """Note what was done."""
        self.spans.append(Span(HOST, name, start, seconds, {"step": self.step}))


def _profiled(runner: Runner, trace: Callable[[], list[Trace]], steps: int, *, training: bool) -> Timeline:
    memories: list[Any] = []
    host = _Host()
    launcher = learning(runner.engine).get(training)
    # makes kernels and memory; then a graph is captured for each of two blocks that take turns to bring
    # batches
    for _ in range(1 if launcher is None else 3):
        float(_step(runner, trace, host, NothingWatched(), memories, training=training))
    host.spans.clear()
    with runner.engine.watch() as watch:
        losses = []
        for host.step in range(steps):
            losses.append(_step(runner, trace, host, watch, memories, training=training))
        with host.doing("wait"):
            for loss in losses:
                float(loss)
        ran = watch.spans()
    start = host.spans[0].start
    spans = [replace(span, start=span.start - start) for span in (*host.spans, *ran)]
    return Timeline(tuple(spans), watch.note)


def _step(
    runner: Runner,
    trace: Callable[[], list[Trace]],
    host: _Host,
    watch: Watch,
    memories: list[Any],
    *,
    training: bool,
) -> float:
    """Run a batch once, without waiting for it; return its loss, which may be pending."""
    with host.doing("trace"):
        traces = trace()
    start = time.perf_counter()
    parts = runner.plan(traces)
    for part in parts:  # planned one after the other
        for key, name in (("merge", "merge"), ("tables", "schedule")):
            seconds = part.batch.seconds[key] if part.batch is not None else 0.0
            host.note(name, start, seconds)
            start += seconds
    with host.doing("ready"):
        for number, part in enumerate(parts):
            ready = runner.engine.ready(part.batch, training=training)  # type: ignore[arg-type] # it is planned
            part.ready[training] = watch.watched(ready, number)
    with host.doing("forward"):
        begun = runner.forward(parts, 0, memories, seeded_results=False, training=training)
        # a later step may use the memory that they are summed from
        loss = sum((sum_losses(runner.model, part.run).total for part in begun), 0.0)
    if training:
        with host.doing("backward"):
            runner.backward(begun, [()] * len(begun), visited=False)
    return loss
