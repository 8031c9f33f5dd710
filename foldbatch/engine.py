"""Running traces: a batch cut into parts, each scheduled and run, forward and backward.

An engine holds what running needs besides parameters: buffers, threads, a lock. It knows traces
and results; examples and names are `foldbatch.program`'s part.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

import numpy as np

from foldbatch.blocks.lower import Lowered
from foldbatch.errors import ExampleError
from foldbatch.params import Array, Gradient, Parameter, SparseRows
from foldbatch.runtime.batch import Batch, arenas_of, schedule_batch
from foldbatch.runtime.executor import Execution
from foldbatch.runtime.keys import keyed
from foldbatch.runtime.moves import moves_for
from foldbatch.runtime.planned import Part
from foldbatch.runtime.reference import Reference
from foldbatch.runtime.report import Report, report_on
from foldbatch.runtime.results import Metrics, MetricValues, Results, collect_metric, decode, join, no_values
from foldbatch.runtime.sums import total
from foldbatch.runtime.threads import in_threads, single_threaded_blas, split
from foldbatch.runtime.visits import Visits
from foldbatch.runtime.workspace import Workspace
from foldbatch.scheduler.compiled import find_arithmetic
from foldbatch.scheduler.layout import find_layout
from foldbatch.scheduler.policies import find_policy
from foldbatch.scheduler.schedule import verify
from foldbatch.scheduler.sharing import find_share
from foldbatch.scheduler.trace import Trace
from foldbatch.static.backends import Backend, find_backend
from foldbatch.static.backends.named_loops import KINDS
from foldbatch.static.backends.numpy import OutOfRangeError

REFERENCE = "reference"
R = TypeVar("R")
Work: TypeAlias = "list[Trace] | tuple[Part, ...]"  # a batch, or one that `Engine.plan` made ready


@dataclass(frozen=True, slots=True)
class Options:
    """How a program runs; see `foldbatch.compile`."""

    backend: str
    policy: str
    layout: str
    batched: bool
    threads: int
    debug: bool
    share: str | None = "leaves"


def backend_of(name: str) -> Backend:
    """Return the backend that cells are compiled for; the reference reads only their graphs.

    Raises:
        UnknownNameError: when there is none of that name.

    >>> backend_of("reference").name
    'numpy'
    """
    return find_backend("numpy" if name == REFERENCE else name)


class Engine:
    """Runs traces of a compiled block, for one thread at a time; others wait.

    Args:
        lowered: the compiled block.
        options: how to run it.
        seed: with the step of training, what random numbers are drawn from.
    """

    def __init__(self, lowered: Lowered, options: Options, seed: int) -> None:
        self.lowered = lowered
        self.options = options
        self.seed = seed
        backend = backend_of(options.backend)
        self.arithmetic = find_arithmetic(backend.name)  # compiled now, not in a batch
        products = [x for cell in lowered.cells for x in (cell.hoisted, cell.hoisted_inference)]
        weights = [product.parameter for product in products if product is not None]
        self._moves = backend.called_by(moves_for(weight.type.dtype for weight in weights))
        self._weights = [
            sum(math.prod(p.type.shape) for p in cell.parameters if p not in cell.sparse)
            for cell in lowered.cells
        ]
        self._workspaces = [Workspace(poisoned=options.debug)]
        self._pool = ThreadPoolExecutor(max(1, options.threads - 1), thread_name_prefix="foldbatch")
        self._lock = threading.Lock()

    def plan(self, traces: list[Trace]) -> tuple[Part, ...]:
        """Return a batch cut into parts and scheduled, for `run` or `value_and_grad` of this engine."""
        if self.options.backend == REFERENCE:
            return self._cut(traces)
        parts = self._cut(traces)
        return tuple([Part(part.first, part.traces, self._scheduled(part.traces)) for part in parts])

    def run(self, batch: Work, step: int = 0) -> Results:
        """Return one result per trace, with metrics and the summed loss, of inference."""
        parts = self._each(partial(self._run, step), batch)
        return join(parts) if parts else Results([], self._metrics({}), 0.0)

    def value_and_grad(self, batch: Work, step: int) -> tuple[float, dict[Parameter, Gradient]]:
        """Return the summed loss, and its gradient for every trainable parameter of the block."""
        parts = self._each(partial(self._value_and_grad, step), batch)
        gradients: dict[Parameter, Gradient] = {}
        for parameter in self.lowered.parameters:
            if parameter.trainable:
                found = [part[parameter] for _, part in parts if parameter in part]
                sum_copies = self._moves.get(f"sum_copies_{KINDS.get(parameter.type.dtype)}")
                gradients[parameter] = total(found, sum_copies) if found else self._no_gradient(parameter)
        return float(sum(loss for loss, _ in parts)), gradients

    def input_gradients(self, traces: list[Trace], step: int, gather: Callable[[Visits], Metrics]) -> Results:
        """Return what `gather` makes of the gradients of data, as metrics, and the summed loss.

        The results are None for each trace; the cells must yield such gradients.
        """
        parts = []
        for loss, visits, size in self._each(partial(self._input_gradients, step), traces):
            parts.append(Results([None] * size, gather(visits), loss))
        nothing = np.zeros(0, np.int64)
        none = Visits({}, [nothing] * len(self.lowered.cells), [nothing] * len(self.lowered.cells))
        return join(parts) if parts else Results([], gather(none), 0.0)

    def report(self, traces: list[Trace], phases: dict[str, float]) -> Report:
        """Return a report on one batch, run whole on one thread; `phases` are seconds spent before."""
        lowered, workspace = self.lowered, self._workspaces[0]
        with self._lock, single_threaded_blas():
            batch = self._ready(Part(0, traces), workspace)
            phases = phases | batch.seconds
            start = time.perf_counter()
            execution = self._execute(batch, 0, workspace, training=True)
            phases["forward"] = time.perf_counter() - start
            calls_forward = execution.kernel_calls
            start = time.perf_counter()
            execution.backward()
            phases["backward"] = time.perf_counter() - start
        kernel_calls = calls_forward, execution.kernel_calls - calls_forward
        return report_on(
            batch,
            lowered.cells,
            lowered.signatures,
            kernel_calls,
            workspace.nbytes,
            phases,
            lowered.tracer.source,
        )

    def _no_gradient(self, parameter: Parameter) -> Gradient:
        """Return a gradient of zeros, of the kind that batches that reach the parameter yield."""
        shape, dtype = parameter.type.shape, parameter.type.dtype
        if any(parameter in cell.sparse for cell in self.lowered.cells):
            return SparseRows(np.zeros(0, np.int64), np.zeros((0, *shape[1:]), dtype), shape)
        return np.zeros(shape, dtype)

    def _each(self, work: Callable[[Part, Workspace], R], batch: Work) -> list[R]:
        """Apply `work` to the parts of a batch; returns the results in order."""
        parts = self._cut(batch) if isinstance(batch, list) else batch
        if not parts:
            return []
        with self._lock, single_threaded_blas():
            if self._one_by_one:
                return [work(part, self._workspaces[0]) for part in parts]
            self._workspaces += [
                Workspace(poisoned=self.options.debug) for _ in parts[len(self._workspaces) :]
            ]
            # all are scheduled in this thread: that is Python for the most part, of which one runs at a time
            ready = [
                part if part.batch else replace(part, batch=self._scheduled(part.traces)) for part in parts
            ]
            pairs = zip(ready, self._workspaces, strict=False)
            return in_threads(self._pool, [partial(work, part, space) for part, space in pairs])

    @property
    def _one_by_one(self) -> bool:
        return not self.options.batched or self.options.backend == REFERENCE

    def _cut(self, traces: list[Trace]) -> tuple[Part, ...]:
        """Cut a batch into the parts that run side by side, or one after the other."""
        if self._one_by_one:
            return tuple(Part(number, [trace]) for number, trace in enumerate(traces))
        runs = split(traces, self.options.threads, self._weights) if traces else ()
        return tuple(Part(first, run) for first, run in runs)

    def _scheduled(self, traces: Sequence[Trace]) -> Batch:
        lowered, options = self.lowered, self.options
        arenas = len(lowered.arenas)
        policy, layout = find_policy(options.policy), find_layout(options.layout)
        share = find_share(options.share)
        batch = schedule_batch(traces, lowered.signatures, policy, layout, arenas, share, self.arithmetic)
        if options.debug:
            verify(batch.schedule, tuple(cell.outputs for cell in lowered.signatures))
        return batch

    def _ready(self, part: Part, workspace: Workspace) -> Batch:
        """Return a part scheduled, with the workspace ready for it."""
        batch = self._scheduled(part.traces) if part.batch is None else part.batch
        if self.options.debug:
            workspace.poison()
        return batch

    def _execute(
        self, batch: Batch, first: int, workspace: Workspace, *, training: bool, step: int = 0
    ) -> Execution:
        lowered = self.lowered
        feeds = batch.feeds
        if any(lowered.keys):
            examples = [table.examples + first for table in batch.schedule.cells]
            feeds = keyed(feeds, lowered.keys, self.seed, step, examples)
        execution = Execution(
            lowered.cells,
            lowered.signatures,
            lowered.arenas,
            workspace,
            batch.schedule,
            feeds,
            training,
            self._moves,
        )
        try:
            execution.forward()
        except OutOfRangeError as error:
            at = execution.step
            assert at is not None
            example = first + int(batch.schedule.cells[at.cell].examples[at.start + error.row])
            where = f"{lowered.cells[at.cell].name} at example {example}"
            raise ExampleError(
                where, f"ids from 0 to {error.size - 1}", str(error.found), "correct what computes the id"
            ) from None
        return execution

    def _evaluate(self, trace: Trace, number: int, *, training: bool, step: int) -> Reference:
        """Return the reference's run of one example, forward."""
        examples = [np.full(len(calls), number) for calls in trace.calls]
        feeds = keyed(trace.feeds, self.lowered.keys, self.seed, step, examples)
        lowered, trace = self.lowered, replace(trace, feeds=feeds)
        reference = Reference(lowered.cells, lowered.signatures, trace, training=training)
        reference.forward()
        return reference

    def _run(self, step: int, part: Part, workspace: Workspace) -> Results:
        if self.options.backend == REFERENCE:
            return self._run_reference(self._evaluate(part.traces[0], part.first, training=False, step=step))
        batch = self._ready(part, workspace)
        execution = self._execute(batch, part.first, workspace, training=False, step=step)
        merged, schedule = batch.merged, batch.schedule
        arena_of = arenas_of(batch, self.lowered.signatures)
        items = decode(
            self.lowered.result,
            batch.results,
            merged.offsets.tolist(),
            lambda numbers: execution.fetch(numbers, arena_of),
        )
        collected: dict[str, list[Any]] = {}
        for (k, i), values in sorted(execution.metrics.items(), key=itemgetter(0)):
            table = schedule.cells[k]
            labels = self._labels(k, i, merged.trace)
            ranked = [labels[at] for at in table.order] if labels is not None else None
            mark = self._mark(k, i)
            visits: Array = merged.trace.calls[k][:, 0][table.order]
            if mark is not None:
                visits = batch.feeds[k][mark] + merged.offsets[table.examples]
            columns = (values, visits, table.examples, ranked)
            collected.setdefault(self.lowered.metrics[k][i], []).append(columns)
        return Results(items, self._metrics(collected), _sum_losses(execution.losses))

    def _run_reference(self, reference: Reference) -> Results:
        trace = reference.trace
        items = decode(
            self.lowered.result, [trace.result], [0], lambda numbers: [reference.values[n] for n in numbers]
        )
        collected: dict[str, list[Any]] = {}
        for (k, i), values in sorted(reference.metrics.items(), key=itemgetter(0)):
            calls = trace.calls[k][:, 0]
            mark = self._mark(k, i)
            visits = calls if mark is None else trace.feeds[k][mark]
            part = (np.array(values), visits, np.full(len(calls), 0), self._labels(k, i, trace))
            collected.setdefault(self.lowered.metrics[k][i], []).append(part)
        return Results(items, self._metrics(collected), reference.losses)

    def _value_and_grad(
        self, step: int, part: Part, workspace: Workspace
    ) -> tuple[float, dict[Parameter, Gradient]]:
        if self.options.backend == REFERENCE:
            reference = self._evaluate(part.traces[0], part.first, training=True, step=step)
            return reference.losses, dict(reference.backward())
        batch = self._ready(part, workspace)
        execution = self._execute(batch, part.first, workspace, training=True, step=step)
        gradients = execution.backward()
        return _sum_losses(execution.losses), gradients

    def _input_gradients(self, step: int, part: Part, workspace: Workspace) -> tuple[float, Visits, int]:
        if self.options.backend == REFERENCE:
            reference = self._evaluate(part.traces[0], part.first, training=True, step=step)
            reference.backward()
            calls = [rows[:, 0].astype(np.int64) for rows in reference.trace.calls]
            found = {
                key: np.array([g for _, g in sorted(by_call.items(), key=itemgetter(0))])
                for key, by_call in reference.inputs.items()
            }
            return reference.losses, Visits(found, calls, [np.zeros(len(c), np.int64) for c in calls]), 1
        batch = self._ready(part, workspace)
        execution = self._execute(batch, part.first, workspace, training=True, step=step)
        execution.backward()
        merged, tables = batch.merged, batch.schedule.cells
        found = {
            (k, i): values[np.argsort(tables[k].order)]  # from ranks back to the order of calls
            for (k, i), values in execution.inputs.items()
        }
        calls = [rows[:, 0].astype(np.int64) for rows in merged.trace.calls]
        visits = Visits(found, calls, [merged.examples(k) for k in range(len(calls))])
        return _sum_losses(execution.losses), visits, len(part.traces)

    def _mark(self, cell: int, metric: int) -> int | None:
        """Return which feed of a cell says when a metric was visited, if that was before the cell's call."""
        return dict(self.lowered.marks[cell]).get(metric)

    def _labels(self, cell: int, metric: int, trace: Trace) -> list[Any] | None:
        labelled = self.lowered.labels[cell]
        return trace.labels[cell][labelled.index(metric)] if metric in labelled else None

    def _metrics(self, collected: dict[str, list[Any]]) -> Metrics:
        """Join what cells collected; a metric that the batch never visits has no values."""
        found: dict[str, MetricValues] = {}
        for cell, names, labels in zip(
            self.lowered.cells, self.lowered.metrics, self.lowered.labels, strict=True
        ):
            for i, name in enumerate(names):
                if name in collected:
                    found.setdefault(name, collect_metric(collected[name]))
                else:
                    found.setdefault(name, no_values(cell.graph.metrics[i].type, labelled=i in labels))
        return Metrics(found)


def _sum_losses(losses: dict[tuple[int, int], Array]) -> float:
    return sum((float(values.sum(dtype=np.float64)) for values in losses.values()), 0.0)
