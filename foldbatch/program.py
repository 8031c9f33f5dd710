"""A compiled block: ``compile(block) -> Program``, which runs any mixture of examples at once.

What is made of what, and when::

    block -> cells, tracer             once, in `compile`
    example -> Trace                   once per example
    traces -> Schedule -> arenas       per batch, forward and backward over the same tables
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from foldbatch.blocks.block import RUNNERS, as_block
from foldbatch.blocks.lower import Lowered, depth, holds_objects, lower
from foldbatch.errors import ExampleError, ExampleTypeError
from foldbatch.params import Array, Gradient, Parameter, ParameterStore, SparseRows, name_parameters
from foldbatch.runtime.batch import Batch, arenas_of, schedule_batch
from foldbatch.runtime.executor import Execution, total
from foldbatch.runtime.keys import keyed
from foldbatch.runtime.reference import Reference
from foldbatch.runtime.report import Report, report_on
from foldbatch.runtime.results import Metrics, MetricValues, Results, collect_metric, decode, join, no_values
from foldbatch.runtime.threads import available_cores, in_threads, single_threaded_blas, split
from foldbatch.runtime.workspace import Workspace
from foldbatch.scheduler.layout import find_layout
from foldbatch.scheduler.policies import find_policy
from foldbatch.scheduler.schedule import verify
from foldbatch.scheduler.trace import Trace
from foldbatch.static.backends import find_backend
from foldbatch.static.backends.numpy import OutOfRangeError
from foldbatch.trees import Node, Tree
from foldbatch.types import describe_value

REFERENCE = "reference"
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Prepared:
    """An example traced ahead by `Program.prepare`; give it to the same program in its stead."""

    trace: Trace
    owner: object = field(repr=False)


def compile(
    block: Any,
    backend: str = "auto",
    policy: str = "by_component",
    layout: str = "consumer",
    *,
    batched: bool = True,
    seed: int = 0,
    threads: int | None = None,
    debug: bool = False,
) -> Program:
    """Compile a block into a program.

    Args:
        block: a block (or what stands for one) whose input is one example.
        backend: ``auto``, ``numpy``, or ``reference`` (one call at a time in float64: slow, right).
        policy: how calls are grouped: ``by_component`` or ``by_depth``.
        layout: how values are numbered: ``consumer`` or ``producer``.
        batched: False runs one example at a time, for comparison.
        seed: from which parameters that have no value yet draw theirs.
        threads: into how many parts a large batch is cut, to run side by side; by default the
            cores at hand. Results differ with it by rounding only.
        debug: check every schedule, and fill unused buffers with NaN.

    Raises:
        BlockTypeError: when the block is ill typed; the message says where.
        UnknownNameError: when a backend, policy or layout does not exist.

    >>> import foldbatch as fb
    >>> program = fb.compile(fb.Map(fb.Scalar() >> fb.Function(lambda x: x * x)))
    >>> [[float(x) for x in result] for result in program.run([[1, 2], [], [3]])]
    [[1.0, 4.0], [], [9.0]]
    """
    options = Options(
        backend, policy, layout, batched, available_cores() if threads is None else threads, debug
    )
    chosen = find_backend("numpy" if backend == REFERENCE else backend)
    find_layout(layout)
    lowered = lower(as_block(block), find_policy(policy), chosen)
    return Program(lowered, options, seed)


@dataclass(frozen=True, slots=True)
class Options:
    """How a program runs; see `compile`."""

    backend: str
    policy: str
    layout: str
    batched: bool
    threads: int
    debug: bool


class Program:
    """A compiled block; made by `compile`.

    `params` maps names to parameter arrays and can be assigned to. A program serves one thread
    at a time; others wait.
    """

    def __init__(self, lowered: Lowered, options: Options, seed: int) -> None:
        self.lowered = lowered
        self.options = options
        self.seed = seed
        self._step = 0
        self.params = ParameterStore(name_parameters(lowered.parameters))
        for name, parameter in self.params.parameters.items():
            parameter.initialize(seed, name)
        self._workspaces = [Workspace(poisoned=options.debug)]
        self._pool = ThreadPoolExecutor(max(1, options.threads - 1), thread_name_prefix="foldbatch")
        self._lock = threading.Lock()
        self._traces: dict[int, tuple[weakref.ref[Tree], Trace]] = {}

    # -- examples to traces

    def prepare(self, examples: Iterable[Any]) -> list[Prepared]:
        """Trace examples ahead; the results stand for them in later calls.

        A `foldbatch.trees.Tree` cannot change, so its trace is kept anyway; of other examples
        this is the way to trace only once.

        Raises:
            ExampleError: when an example does not fit the block.
        """
        return [Prepared(trace, self) for trace in self._trace_all(examples)]

    def _trace_all(self, examples: Iterable[Any]) -> list[Trace]:
        if isinstance(examples, Tree | Node | str | bytes | dict) or not isinstance(examples, Iterable):
            fix = "for a single example, pass a list of one"
            raise ExampleTypeError("examples", "an iterable of examples", describe_value(examples), fix)
        return [self._trace(example, number) for number, example in enumerate(examples)]

    def _trace(self, example: Any, number: int) -> Trace:
        if isinstance(example, Prepared):
            if example.owner is not self:
                raise ExampleError(
                    f"example {number}", "an example prepared by this program", "one of another program"
                )
            return example.trace
        if not isinstance(example, Tree):
            return self.lowered.tracer.trace(example, number)
        key = id(example)
        known = self._traces.get(key)
        if known is not None and known[0]() is example:
            return known[1]
        trace = self.lowered.tracer.trace(example, number)
        if not holds_objects(self.lowered, trace):  # a tree must not live as long as the program
            traces = self._traces  # not self: a program must not live as long as the trees it saw
            self._traces[key] = weakref.ref(example, lambda _: traces.pop(key, None)), trace
        return trace

    # -- running

    def run(self, examples: Iterable[Any]) -> Results:
        """Return one result per example, in order, with metrics and the summed loss.

        Raises:
            ExampleError: when an example does not fit the block; nothing has changed then.
        """
        parts = self._each(self._run, self._trace_all(examples))
        return join(parts) if parts else Results([], self._metrics({}), 0.0)

    def value_and_grad(
        self, examples: Iterable[Any], *, step: int | None = None
    ) -> tuple[float, dict[str, Gradient]]:
        """Return the float sum of all losses over the batch, and its gradients by parameter name.

        A gradient has its parameter's shape; that of an embedding is a `SparseRows`, whose
        `dense()` does. Frozen parameters have none. Parameters are not changed.

        Random numbers, as of `Dropout`, are drawn anew at each call; the same `step`, a number, draws
        the same again.

        Raises:
            ExampleError: when an example does not fit the block; nothing has changed then.
        """
        traces = self._trace_all(examples)
        if step is None:
            step, self._step = self._step, self._step + 1
        parts = self._each(partial(self._value_and_grad, step), traces)
        gradients: dict[str, Gradient] = {}
        for name, parameter in self.params.parameters.items():
            if parameter.trainable:
                found = [part[parameter] for _, part in parts if parameter in part]
                gradients[name] = total(found) if found else self._no_gradient(parameter)
        return float(sum(loss for loss, _ in parts)), gradients

    def _no_gradient(self, parameter: Parameter) -> Gradient:
        """Return a gradient of zeros, of the kind that batches that reach the parameter yield."""
        shape, dtype = parameter.type.shape, parameter.type.dtype
        if any(parameter in cell.sparse for cell in self.lowered.cells):
            return SparseRows(np.zeros(0, np.int64), np.zeros((0, *shape[1:]), dtype), shape)
        return np.zeros(shape, dtype)

    def _each(self, work: Callable[[list[Trace], int, Workspace], R], traces: list[Trace]) -> list[R]:
        """Apply `work` to the parts of a batch; returns the results in order."""
        if not traces:
            return []
        with self._lock, single_threaded_blas():
            if not self.options.batched or self.options.backend == REFERENCE:
                return [work([trace], number, self._workspaces[0]) for number, trace in enumerate(traces)]
            parts = split(traces, self.options.threads)
            self._workspaces += [
                Workspace(poisoned=self.options.debug) for _ in parts[len(self._workspaces) :]
            ]
            pairs = zip(parts, self._workspaces, strict=False)
            return in_threads(
                self._pool, [partial(work, part, first, space) for (first, part), space in pairs]
            )

    def _schedule(self, traces: Sequence[Trace], workspace: Workspace) -> Batch:
        lowered, options = self.lowered, self.options
        arenas = len(lowered.arenas)
        batch = schedule_batch(
            traces, lowered.signatures, find_policy(options.policy), find_layout(options.layout), arenas
        )
        if options.debug:
            verify(batch.schedule, tuple(cell.outputs for cell in lowered.signatures))
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

    def _run(self, traces: list[Trace], first: int, workspace: Workspace) -> Results:
        if self.options.backend == REFERENCE:
            return self._run_reference(self._with_keys(traces[0], first, 0))
        batch = self._schedule(traces, workspace)
        execution = self._execute(batch, first, workspace, training=False)
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
            part = (values, merged.trace.calls[k][:, 0][table.order], table.examples, ranked)
            collected.setdefault(self.lowered.metrics[k][i], []).append(part)
        return Results(items, self._metrics(collected), _sum_losses(execution.losses))

    def _value_and_grad(
        self, step: int, traces: list[Trace], first: int, workspace: Workspace
    ) -> tuple[float, dict[Parameter, Gradient]]:
        if self.options.backend == REFERENCE:
            trace = self._with_keys(traces[0], first, step)
            reference = Reference(self.lowered.cells, self.lowered.signatures, trace, training=True)
            reference.forward()
            return reference.losses, dict(reference.backward())
        batch = self._schedule(traces, workspace)
        execution = self._execute(batch, first, workspace, training=True, step=step)
        gradients = execution.backward()
        return _sum_losses(execution.losses), gradients

    def _with_keys(self, trace: Trace, number: int, step: int) -> Trace:
        examples = [np.full(len(calls), number) for calls in trace.calls]
        return replace(trace, feeds=keyed(trace.feeds, self.lowered.keys, self.seed, step, examples))

    def _run_reference(self, trace: Trace) -> Results:
        reference = Reference(self.lowered.cells, self.lowered.signatures, trace, training=False)
        reference.forward()
        items = decode(
            self.lowered.result, [trace.result], [0], lambda numbers: [reference.values[n] for n in numbers]
        )
        collected: dict[str, list[Any]] = {}
        for (k, i), values in sorted(reference.metrics.items(), key=itemgetter(0)):
            calls = trace.calls[k][:, 0]
            part = (np.array(values), calls, np.full(len(calls), 0), self._labels(k, i, trace))
            collected.setdefault(self.lowered.metrics[k][i], []).append(part)
        return Results(items, self._metrics(collected), reference.losses)

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

    # -- reports

    def describe(self, examples: Iterable[Any]) -> Report:
        """Return a report on one batch of examples: steps, kernel calls, bytes, seconds.

        A single example that is no list will do. The batch is run whole, on one thread.
        Parameters are not changed.
        """
        batch_of = examples if isinstance(examples, list | tuple) else [examples]
        start = time.perf_counter()
        traces = self._trace_all(batch_of)
        phases = {"trace": time.perf_counter() - start}
        lowered = self.lowered
        workspace = self._workspaces[0]
        with self._lock, single_threaded_blas():
            batch = self._schedule(traces, workspace)
            phases |= batch.seconds
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

    def kernels(self) -> str:
        """Return the generated source: the tracing program and every kernel."""
        texts = [self.lowered.tracer.source]
        texts += [
            f"# {kernel.name}\n{kernel.source}" for cell in self.lowered.cells for kernel in cell.kernels
        ]
        return "\n\n".join(texts)

    def depth(self, example: Any) -> int:
        """Return the longest chain of calls that compute something, for one example."""
        return depth(self.lowered, self._trace(example, 0))


def _sum_losses(losses: dict[tuple[int, int], Array]) -> float:
    return sum((float(values.sum(dtype=np.float64)) for values in losses.values()), 0.0)


def _evaluate(block: Any, example: Any, backend: str) -> Any:
    results = compile(block, backend).run([example])
    if not results.metrics:
        return results[0]
    return results[0], {
        name: [m.values[i, ...] for i in range(len(m))] for name, m in results.metrics.items()
    }


RUNNERS["eval"] = _evaluate
RUNNERS["max_depth"] = lambda block, example: compile(block).depth(example)
