"""Variants: one model made ready several times, each with the losses and metrics that some runs ask for."""

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import Any, TypeVar
from warnings import warn

from foldbatch.engines.planned import Planned
from foldbatch.engines.runner import Options, Runner, Work
from foldbatch.errors import NewCellsWarning, WalkError, frames_inside
from foldbatch.model.tracer import Decide, TraceAll, Tracer
from foldbatch.params.parameters import Parameter
from foldbatch.program.derivatives import Derivatives
from foldbatch.program.traced import Prepared, Traces, digests, listed
from foldbatch.scheduler.trace import Trace
from foldbatch.system.forks import start_in_each_process
from foldbatch.trees.records import Records

TRIES = 20  # batches one after the other, or runs of one batch, in which a model may grow

T = TypeVar("T")


class ReadyModel:
    """A model made ready to run: what runs it, the traces of examples for it, and derivatives of it."""

    def __init__(
        self, tracer: Tracer, options: Options, seed: int, parameters: Mapping[str, Parameter]
    ) -> None:
        self.tracer = tracer
        self.model = tracer.model
        self.runner = Runner(self.model, options, seed)
        self.traces = Traces(tracer, self.model, self.runner.plan)
        self.derivatives = Derivatives(self.runner, parameters)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what decides whether another program can run what this one prepared or planned."""
        options = self.runner.options
        forms = digests(self.model, self.tracer.source, options.policy)
        work = [forms, options.layout, options.share, options.batched]
        return hashlib.sha256(repr(work).encode()).hexdigest()


class Variant:
    """A tracer and its model, made ready anew whenever the model has grown."""

    def __init__(self, tracer: Tracer, make: Callable[[Tracer], ReadyModel]) -> None:
        self.tracer = tracer
        self._make = make
        self.ready = make(tracer)
        self.growing = 0  # for how many batches the model has grown, one after the other

    def work(
        self, examples: Iterable[Any] | Planned, decide: Decide | None = None
    ) -> tuple[ReadyModel, Work]:
        """Return the traces of examples, or a plan of the batch where one is at hand, and what runs them."""
        if not isinstance(examples, Planned):
            batch = listed(examples)
            trace_all = None if decide is None else partial(self.tracer.trace_all, decide=decide)
            return self._fitting(lambda ready, fresh: ready.traces.work(batch, ready, trace_all, fresh))
        owner = examples.owner
        if isinstance(owner, ReadyModel) and owner.tracer is self.tracer:  # planned before the model grew
            return owner, examples.parts
        return self._fitting(lambda ready, fresh: ready.traces.work(examples, ready))

    def all(
        self, examples: Iterable[Any] | Planned, trace_all: TraceAll | None = None
    ) -> tuple[ReadyModel, list[Trace]]:
        """Return the traces of examples, and what runs them; errors are those of `work`."""
        batch = examples if isinstance(examples, Planned) else listed(examples)
        return self._fitting(lambda ready, fresh: ready.traces.all(batch, ready, trace_all, fresh))

    def _fitting(self, trace: Callable[[ReadyModel, dict[int, Trace]], T]) -> tuple[ReadyModel, T]:
        """Trace, and after the model has grown trace anew what was known from before, and does not fit it."""
        fresh: dict[int, Trace] = {}  # what has just been traced: a walk may read an example only once
        with self.tracer.lock():
            for tries in range(TRIES):
                if self.tracer.model is not self.ready.model:
                    self.ready = self._make(self.tracer)
                ready = self.ready
                traced = trace(ready, fresh)
                if self.tracer.model is ready.model:
                    self._count(grown=tries > 0)
                    return ready, traced
        found = f"new ones each of the {TRIES} times that it ran on a batch"
        fix = "make layers, cells and their keyword-only arguments once, not in the walk"
        raise WalkError("walk", "calls of the same cells for the same examples", found, fix)

    def _count(self, *, grown: bool) -> None:
        """Warn, once, of a walk that does not settle."""
        self.growing = self.growing + 1 if grown else 0
        if self.growing == TRIES:
            found = f"new ones in each of {TRIES} batches, for which the model is made anew"
            fix = "make layers, cells and their keyword-only arguments once, not in the walk"
            warning = NewCellsWarning("walk", "calls of cells that are known after some batches", found, fix)
            warn(warning, stacklevel=frames_inside())


class Variants:
    """The variants of a program."""

    def __init__(self, tracer: Tracer, make: Callable[[Tracer], ReadyModel]) -> None:
        self._make = make
        start_in_each_process(self, Variants._start)
        self.full = Variant(tracer, make)
        self._built = {tracer.asides: self.full}

    def _start(self) -> None:
        self._lock = threading.Lock()

    def for_run(self, examples: Iterable[Any] | Planned, asides: frozenset[str]) -> Variant:
        """Return the variant that runs examples."""
        if isinstance(examples, Planned):
            return self.full
        kinds = set() if isinstance(examples, Records) else {*map(type, examples)}
        if any(issubclass(kind, Prepared) for kind in kinds):
            return self.full
        asides &= self.full.tracer.asides
        with self._lock:
            if asides not in self._built:
                self._built[asides] = Variant(self.full.tracer.variant(asides), self._make)
            return self._built[asides]
