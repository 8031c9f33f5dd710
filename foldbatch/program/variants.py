"""Variants: one model made ready several times, each with the losses and metrics that some runs ask for.

A ready model makes derivatives beyond the gradient when they are first asked for, and learns how large
batches are for an engine that runs one by one launch.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from functools import cached_property, partial
from typing import NamedTuple, TypeVar
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike

from foldbatch.engines.batch import Planned
from foldbatch.engines.engine import LoadedEngine
from foldbatch.engines.held import Gradients, Pool
from foldbatch.engines.parts import Seeds
from foldbatch.engines.report import Captures
from foldbatch.engines.results import Metrics, Results
from foldbatch.engines.runner import Options, Runner, Work, alone
from foldbatch.engines.visits import DataGradients, InputGradients, gather
from foldbatch.errors import NewCellsWarning, ParameterError, UnknownNameError, WalkError, frames_inside
from foldbatch.model.dual import LOSS, FeedTangents, dual, float_reads, with_gradients
from foldbatch.model.tracer import Decide, RunSmall, TraceAll, Tracer
from foldbatch.model.weighted import weighted
from foldbatch.params.gradients import BatchGradients, by_name
from foldbatch.params.parameters import Array, Parameter, SparseRows, dense
from foldbatch.program.traced import Prepared, Traces, listed
from foldbatch.scheduler.trace import Trace
from foldbatch.system.processes import start_in_each_process
from foldbatch.types import describe_value

Tangents = Mapping[str, ArrayLike | SparseRows]


class Pullback(NamedTuple):
    """The result of `Program.vjp`."""

    loss: float  # the float sum of all losses
    gradients: BatchGradients[str]  # of parameters, by name
    inputs: InputGradients  # of floats in examples, by the block that reads them; empty if not asked for


class Second(NamedTuple):
    """Derivatives of a batch's gradients along tangents, see `Derivatives.second`."""

    gradients: Gradients  # of the tangent of the loss, or of the results with their cotangents
    loss: float  # the tangent of the summed loss
    values: list[Array | None]  # the tangents of the results' tensors, in order; None of those of integers


class Derivatives:
    """The runners that compute derivatives of one program."""

    def __init__(self, runner: Runner, parameters: Mapping[str, Parameter]) -> None:
        self.runner = runner
        self.parameters = parameters
        start_in_each_process(self, Derivatives._start)
        self._runners: dict[tuple[object, ...], Runner] = {}
        self._pools: dict[Runner, Pool] = {}
        self._duals: dict[tuple[bool, ...], Pool] = {}

    def _start(self) -> None:
        self._lock = threading.RLock()  # it stays taken where a signal handler raises just then
        self._busy = False

    @cached_property
    def tangents(self) -> dict[str, Parameter]:
        """Parameters that hold the tangents of trainable parameters, by name."""
        named = [(name, p.type) for name, p in self.parameters.items() if p.trainable]
        return {name: Parameter(of, 0.0, f"tangents[{name!r}]", trainable=False) for name, of in named}

    @cached_property
    def _dual(self) -> Runner:
        return self._dual_of()

    def _dual_of(self, **wanted: bool) -> Runner:
        """Return a runner of the dual model; arguments are those of `foldbatch.model.dual.dual`."""
        tangents = {self.parameters[name]: tangent for name, tangent in self.tangents.items()}
        return Runner(dual(self.runner.model, tangents, **wanted), self.runner.options, self.runner.seed)

    @cached_property
    def weighted(self) -> Runner:
        """A runner of the model whose losses are multiplied by weights of examples."""
        return Runner(weighted(self.runner.model), self.runner.options, self.runner.seed)

    @alone
    def jvp(self, traces: list[Trace], tangents: Tangents, step: int) -> tuple[float, float]:
        """Return the summed loss and its derivative along the tangents."""
        self._assign(tangents)
        results = self._dual.run(traces, step)
        losses = results.metrics[LOSS].values if LOSS in results.metrics else np.zeros(0)
        return float(losses.sum(dtype=np.float64)), results.loss

    @alone
    def hvp(self, traces: list[Trace], tangents: Tangents, step: int) -> dict[str, Array]:
        """Return the Hessian of the summed loss times the tangents, by trainable parameter."""
        self._assign(tangents)
        _, products = self._dual.value_and_grad(traces, step)
        trainable = {
            name: self.parameters[name] for name in self.tangents
        }  # some only serve decisions: no loss
        return {
            n: dense(products[p]) if p in products else np.zeros_like(p.value) for n, p in trainable.items()
        }

    @alone
    def second(
        self,
        traces: list[Trace],
        step: int,
        tangents: Mapping[Parameter, Array],
        of_data: FeedTangents | None,
        cotangents: Sequence[Array | None] | None,
        *,
        training: bool,
    ) -> Second:
        """Return how loss or results of a batch, and their gradients, change along tangents.

        Args:
            traces: the batch.
            step: what random numbers are drawn for.
            tangents: by parameter, ``[*shape]``; others stay where they are.
            of_data: the tangents of the floats in examples; None where these stay, and have no gradients.
            cotangents: for each tensor of the results its cotangent, or None; None in all where the summed
                loss is differentiated.
            training: whether the model computes what it trains.
        """
        for name, tangent in self.tangents.items():
            tangent.value[...] = tangents.get(self.parameters[name], 0)
        results, inputs = cotangents is not None, of_data is not None
        key = (results, inputs, training)
        if key not in self._duals:
            self._duals[key] = Pool(self._dual_of(results=results, inputs=inputs, training=training))
        waiting = self._duals[key].hold(traces, step, results=results, tangents=of_data)
        if cotangents is None:
            loss = waiting.loss  # its memory is another batch's after the backward pass
            return Second(waiting.backward((), visited=inputs), loss, [])
        pairs = [value if value.dtype.kind == "f" else None for value in waiting.values]
        seeds = [None if u is None else np.stack([np.zeros_like(u), u]) for u in cotangents]
        gradients = waiting.backward(seeds, visited=inputs)
        return Second(gradients, 0.0, [None if pair is None else pair[1] for pair in pairs])

    def vjp(
        self,
        traces: list[Trace],
        step: int,
        seeds: Seeds | None,
        *,
        losses: bool = True,
        inputs: bool = False,
    ) -> Pullback:
        """Return the summed loss, the gradients of parameters by name, and those of inputs.

        Per example, `seeds` are the numbers of values with cotangents; None is for none at all. Losses yield
        gradients too, if asked for; inputs are the floats in examples.
        """
        reads = float_reads(self.runner.model) if inputs else {}

        def gathered(visits: DataGradients) -> Metrics:
            return Metrics({name: gather(visits, *read) for name, read in reads.items()})

        runner = self.gradients_of(losses=losses, results=seeds is not None, inputs=inputs)
        results, gradients = runner.vjp(traces, step, seeds, gathered)
        named = by_name(gradients, self.parameters)
        return Pullback(results.loss, named, InputGradients(dict(results.metrics)))

    def gradients_of(self, *, training: bool = True, **wanted: bool) -> Runner:
        """Return a runner of a model that computes these gradients as results; it is kept for the next call.

        The arguments are those of `with_gradients`.
        """
        key = (training, *sorted(wanted.items()))
        with self._lock:
            if key not in self._runners:
                model = with_gradients(self.runner.model, training=training, **wanted)
                self._runners[key] = Runner(model, self.runner.options, self.runner.seed)
            return self._runners[key]

    def pool_of(self, *, losses: bool, results: bool, inputs: bool, training: bool) -> Pool:
        """Return the pool that runs batches forward and holds them until their gradients are wanted.

        Arguments are those of `with_gradients`; gradients of parameters are always among them.
        """
        if losses and training and not results and not inputs:
            return self.own_pool
        runner = self.gradients_of(losses=losses, results=results, inputs=inputs, training=training)
        with self._lock:
            return self._pools.setdefault(runner, Pool(runner))

    @cached_property
    def own_pool(self) -> Pool:
        """The pool of the program's own cells, which yield gradients of losses."""
        return Pool(self.runner)

    def _assign(self, tangents: Tangents) -> None:
        """Copy tangents into the parameters that hold them; refuse unknown and frozen names."""
        if not isinstance(tangents, Mapping):
            actual, fix = describe_value(tangents), "for example {'linear.weight': array}"
            raise ParameterError("tangents", "a mapping from names of parameters to arrays", actual, fix)
        for name in tangents:
            if name in self.parameters and name not in self.tangents:
                fix = "leave it out: what is frozen does not move"
                raise ParameterError(f"tangents[{name!r}]", "a trainable parameter", "a frozen one", fix)
            if name not in self.tangents:
                expected = f"a parameter of {', '.join(self.tangents) or 'none'}"
                raise UnknownNameError("tangents", expected, repr(name), "print(program.params)")
        for name, tangent in self.tangents.items():
            if name in tangents:
                tangent.assign(_array(name, tangents[name]))
            else:
                tangent.value[...] = 0


def _array(name: str, value: object) -> Array:
    """Return a tangent as an array; sparse rows become dense."""
    if isinstance(value, SparseRows):
        return value.dense()
    try:
        return np.asarray(value)
    except ValueError:
        actual = describe_value(value)
        fix = "give numbers, in rows of one length"
        raise ParameterError(f"tangents[{name!r}]", "an array", actual, fix) from None


def learned(
    runner: Runner, traces: Sequence[Trace], batch_size: int, batches: int, *, training: bool = True
) -> Captures | None:
    """Make capacity classes for random batches of traces, as a CUDA engine does; return its captures.

    None for an engine that captures no graphs. The batches are the same ones each time.

    Args:
        runner: the runner of the model.
        traces: the traces to draw from.
        batch_size: the examples of each batch.
        batches: how many batches to draw.
        training: whether there are batches for training, beside those for inference.
    """
    engine = runner.engine
    launchers = {phase: engine.launcher(training=phase) for phase in {False, training}}
    learners = {phase: launcher for phase, launcher in launchers.items() if launcher is not None}
    draw = np.random.default_rng(0)  # the same batches each time
    for _ in range(batches if learners and traces else 0):
        chosen = draw.permutation(len(traces))[:batch_size].tolist()
        batch = runner.scheduled([traces[number] for number in chosen])
        asides = runner.usual_asides([batch])
        for phase in learners:
            engine.ready(batch if phase else runner.pruned(batch, asides), training=phase)
    for learner in learners.values():
        learner.learn()
    return captures(engine) if training else None


def captures(engine: LoadedEngine) -> Captures | None:
    """Return an engine's captured capacity classes; None if it launches kernels one by one."""
    launcher = engine.launcher(training=True)
    return None if launcher is None else launcher.captures()


TRIES = 20  # batches, or runs of one batch, in which a model may grow
NEW_PARAMETER_EXAMPLES = 8  # examples that may each bring a parameter without a warning
ONCE = "make layers, cells and their keyword-only arguments once, not in the walk"

T = TypeVar("T")
S = TypeVar("S", bound=Results)


class ReadyModel:
    """A model made ready: its runner, the traces of examples for it, and its derivatives."""

    def __init__(
        self, tracer: Tracer, options: Options, seed: int, parameters: Mapping[str, Parameter]
    ) -> None:
        self.tracer = tracer
        self.model, self.cells = tracer.model, tracer.cells
        self._seed, self._parameters = seed, parameters
        self.traces = Traces(tracer, self.model)
        self.run_on(options)

    def run_on(self, options: Options) -> None:
        """Let an engine of these options run the model from now on; traces and plans stay."""
        self.runner = Runner(self.model, options, self._seed)
        self.derivatives = Derivatives(self.runner, self._parameters)
        self.traces.plan = self.runner.plan
        self._by_precision: dict[str, Derivatives] = {}

    def in_precision(self, precision: str) -> Derivatives:
        """Return the derivatives as computed in a precision, see `foldbatch.compile`; made once."""
        options = self.runner.options
        if precision == options.precision:
            return self.derivatives
        if precision not in self._by_precision:
            runner = Runner(self.model, replace(options, precision=precision), self._seed)
            self._by_precision[precision] = Derivatives(runner, self._parameters)
        return self._by_precision[precision]

    @cached_property
    def fingerprint(self) -> str:
        """A digest that is equal in programs which can run each other's prepared or planned examples."""
        model, options = self.model, self.runner.options
        cells = [
            (s.component, s.recursive, s.arguments, s.sequences, len(s.outputs)) for s in model.signatures
        ]
        feeds = [[(str(feed.type), str(feed.declared)) for feed in cell_feeds] for cell_feeds in model.feeds]
        form = [cells, feeds, model.bounds, model.labels, model.keys, str(model.result), self.tracer.source]
        work = [form, options.policy, options.layout, options.share, options.batched]
        return hashlib.sha256(repr(work).encode()).hexdigest()


class Variant:
    """A tracer and its model, made ready anew whenever the model has grown."""

    def __init__(self, tracer: Tracer, make: Callable[[Tracer], ReadyModel]) -> None:
        self.tracer = tracer
        self._make = make
        self.ready = make(tracer)
        self.growing = 0  # consecutive batches in which the model has grown
        self._examples = self._brought = 0  # in these batches: examples, and new parameters
        self._warned = False

    def work(
        self,
        examples: Iterable[object] | Planned,
        decide: Decide | None = None,
        run_small: RunSmall[S] | None = None,
    ) -> tuple[ReadyModel, Work | S]:
        """Return traces of examples, or a kept plan of the batch, and the model that runs them.

        Results of a small batch, which `run_small` returns, take the place of the traces.
        """
        if not isinstance(examples, Planned):
            batch = listed(examples)
            if (former := self._former(batch)) is not None:
                return former, former.traces.work(batch, former)
            trace_all = None if decide is None else partial(self.tracer.trace_all, decide=decide)
            run = (
                None
                if run_small is None
                else partial(self.tracer.trace_all, decide=decide, run_small=run_small)
            )
            return self._fitting(
                lambda ready, new: ready.traces.work(batch, ready, trace_all, new, run), batch
            )
        owner = examples.owner
        if isinstance(owner, ReadyModel) and owner.tracer is self.tracer:  # planned before the model grew
            return owner, examples.parts
        return self._fitting(lambda ready, fresh: ready.traces.work(examples, ready), examples)

    def all(
        self, examples: Iterable[object] | Planned, trace_all: TraceAll | None = None
    ) -> tuple[ReadyModel, list[Trace]]:
        """Return the traces of examples, and the model that runs them; errors are those of `work`."""
        if isinstance(examples, Planned) and examples.owner is self.ready and not self.tracer.grows:
            return self.ready, examples.traces
        batch = examples if isinstance(examples, Planned) else listed(examples)
        if not isinstance(batch, Planned) and (former := self._former(batch)) is not None:
            return former, former.traces.all(batch, former)
        return self._fitting(lambda ready, new: ready.traces.all(batch, ready, trace_all, new), batch)

    def _former(self, batch: Sequence[object]) -> ReadyModel | None:
        """Return the model that all examples were prepared for, before it has grown; None without one."""
        owner = batch[0].owner if batch and isinstance(batch[0], Prepared) else None
        if not isinstance(owner, ReadyModel) or owner.tracer is not self.tracer or owner is self.ready:
            return None
        alike = all(isinstance(example, Prepared) and example.owner is owner for example in batch)
        return owner if alike else None

    def _fitting(self, trace: Callable[..., T], batch: Sized) -> tuple[ReadyModel, T]:
        """Trace; if the model has grown meanwhile, trace again the examples whose traces do not fit it."""
        fresh: dict[int, Trace] = {}  # new traces: a walk may read an example only once
        with self.tracer.lock():
            before = len(self.ready.model.parameters)
            for tries in range(TRIES):
                if self.tracer.model is not self.ready.model:
                    self.ready = self._make(self.tracer)
                ready = self.ready
                traced = trace(ready, fresh)
                if isinstance(traced, Results):
                    return ready, traced
                if self.tracer.model is ready.model:
                    if tries or self.growing:
                        brought = before and len(ready.model.parameters) - before
                        self._count(len(batch), brought, grown=tries > 0)
                    return ready, traced
        actual = f"new ones each of the {TRIES} times that it ran on a batch"
        raise WalkError("walk", "calls of the same cells for the same examples", actual, ONCE)

    def _count(self, examples: int, brought: int, *, grown: bool) -> None:
        """Warn, once, of a walk that does not settle; early if examples each bring new parameters."""
        self.growing = self.growing + 1 if grown else 0
        self._examples = self._examples + examples * bool(brought) if grown else 0
        self._brought = self._brought + brought if grown else 0
        per_example = not self._warned and self._brought >= self._examples >= NEW_PARAMETER_EXAMPLES
        if per_example or self.growing == TRIES:
            self._warned = True
            repeated = f"new ones in each of {TRIES} batches, for which the model is made anew"
            actual = (
                f"{self._brought} new parameters for {self._examples} examples" if per_example else repeated
            )
            actual, fix = (None if per_example else self.tracer.lengths(TRIES // 2)) or (actual, ONCE)
            warning = NewCellsWarning("walk", "calls of cells that are known after some batches", actual, fix)
            warn(warning, stacklevel=frames_inside())


class Variants:
    """The variants of a program."""

    def __init__(self, tracer: Tracer, make: Callable[[Tracer], ReadyModel]) -> None:
        self._make = make
        start_in_each_process(self, Variants._start)
        self.full = Variant(tracer, make)
        self._built = {tracer.asides: self.full}

    def _start(self) -> None:
        self._lock = threading.RLock()  # it stays taken where a signal handler raises just then

    def run_on(self, options: Options) -> None:
        """Let an engine of these options run all variants from now on."""
        with self._lock:
            for variant in self._built.values():
                variant.ready.run_on(options)

    def for_run(self, examples: Iterable[object] | Planned, asides: frozenset[str]) -> Variant:
        """Return the variant that runs examples."""
        if isinstance(examples, Planned):
            return self.full
        if Prepared in {*map(type, examples)}:
            return self.full
        if asides:
            asides &= self.full.tracer.asides
        if asides not in self._built:  # looked at first: a handler of signals may raise where a lock is taken
            with self._lock:
                if asides not in self._built:
                    self._built[asides] = Variant(self.full.tracer.variant(asides), self._make)
        return self._built[asides]
