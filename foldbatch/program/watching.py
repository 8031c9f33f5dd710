"""Reports of a program on its runs: times of host, threads and device, and warnings, once each."""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from foldbatch.engines.nonfinite import look_for_not_finite
from foldbatch.engines.parts import collected, sum_losses
from foldbatch.engines.pending import Pending
from foldbatch.engines.runner import Runner
from foldbatch.engines.watching import Watch
from foldbatch.errors import (
    FoldbatchWarning,
    NoLossWarning,
    NotFiniteWarning,
    UnusedSeedWarning,
    frames_inside,
    shortened,
)
from foldbatch.model.model import Model
from foldbatch.params.parameters import Gradient, ParameterStore
from foldbatch.scheduler.trace import Trace
from foldbatch.timelines import Span, Timeline

HOST = "host"


@dataclass(slots=True)
class _Host:
    spans: list[Span] = field(default_factory=list)  # so far
    step: int = 0  # the number of the step under way

    @contextmanager
    def doing(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.note(name, start, time.perf_counter() - start)

    def note(self, name: str, start: float, seconds: float) -> None:
        self.spans.append(Span(HOST, name, start, seconds, {"step": self.step}))


def profiled(runner: Runner, trace: Callable[[], list[Trace]], steps: int, *, training: bool) -> Timeline:
    """Return the timeline of a batch that runs several times; `Program.profile` explains it."""
    memories: list[object] = []
    host = _Host()
    launcher = runner.engine.launcher(training=training)
    # makes kernels and memory; then a graph is captured for each of two blocks that take turns to bring
    # batches
    for _ in range(1 if launcher is None else 3):
        float(_step(runner, trace, host, Watch(), memories, training=training))
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
    memories: list[object],
    *,
    training: bool,
) -> float:
    """Run a batch once; return its loss, which may be pending; of inference 0, as its results are read."""
    with host.doing("trace"):
        traces = trace()
    start = time.perf_counter()
    parts = runner.plan(traces)
    for part in parts:  # planned one after the other
        for key, name in (("merge", "merge"), ("tables", "schedule")):
            seconds = part.batch.seconds[key] if part.batch is not None else 0.0
            host.note(name, start, seconds)
            start += seconds
    asides = runner.usual_asides(part.batch for part in parts if part.batch is not None)
    work: Any = parts if training else runner.asked(parts, asides)
    with host.doing("ready"):
        for number, part in enumerate(work):
            ready = runner.engine.ready(part.batch, training=training)
            part.ready[runner.engine, training] = watch.watched(ready, number)
    with host.doing("forward"):
        begun = runner.forward(work, 0, memories, seeded_results=False, training=training)
        # a later step may use the memory that losses are summed from, and that results lie in
        if not training:
            for of_part in begun:
                collected(runner.model, of_part, asides)
            return 0.0
        loss = sum((sum_losses(runner.model, of_part.run).total for of_part in begun), 0.0)
    with host.doing("backward"):
        runner.backward(begun, [()] * len(begun), visited=False)
    return loss


class Warned:
    """The warnings of a program, each given once."""

    def __init__(self, params: ParameterStore) -> None:
        self._params = params
        self._of: set[type[FoldbatchWarning]] = set()

    def of_seed(self, seed: int, names: Sequence[str]) -> None:
        """Warn of a seed that parameters of these names ignore, as they have values already."""
        if UnusedSeedWarning not in self._of:
            expected = f"parameters without values, or with those that seed {seed} draws"
            actual = f"other values in {shortened(names)}"
            fix = "fresh=True gives this program new ones; without a seed, it shares those there are"
            self._warn(UnusedSeedWarning("fb.compile seed", expected, actual, fix))

    def _warn(self, warning: FoldbatchWarning) -> None:
        self._of.add(type(warning))
        warnings.warn(warning, stacklevel=frames_inside())

    def look_at(self, model: Model, loss: float, gradients: Mapping[str, Gradient] | None = None) -> None:
        """Warn of numbers that are not finite, or of a model to be trained that has no loss."""
        trains, bad = gradients is not None, None
        pending = isinstance(loss, Pending)
        if gradients and NotFiniteWarning not in self._of and (pending or math.isfinite(loss)):
            bad = look_for_not_finite(gradients, self._params.updates)
        warn = partial(self._warn_of, model, bad=bad, trains=trains)
        if isinstance(loss, Pending):
            loss.then(warn)
        else:
            warn(loss)

    def _warn_of(
        self, model: Model, loss: float, bad: Callable[[], str | None] | None, *, trains: bool
    ) -> None:
        """Warn of a loss; `bad` returns the name of a gradient that is not finite."""
        warning: FoldbatchWarning
        fix = "call program.find_nan(examples)"
        if not math.isfinite(loss):
            warning = NotFiniteWarning("loss", "a finite number", str(loss), fix)
        elif bad is not None and (name := bad()) is not None:
            warning = NotFiniteWarning(f"{name} gradient", "finite numbers", "a NaN or an infinity", fix)
        elif trains and loss == 0 and not any(cell.built.losses for cell in model.cells):
            fix = "end a branch in Loss, as AllOf(Identity(), Loss()), or call fb.loss, of no None"
            warning = NoLossWarning("value_and_grad", "a model with a loss", "none", fix)
        else:
            return
        if type(warning) not in self._of:
            self._warn(warning)
