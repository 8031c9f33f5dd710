"""A compiled block: ``compile(block) -> Program``, which runs any mixture of examples at once.

What is made of what, and when::

    block -> cells, tracer             once, in `compile`
    example -> Trace                   once per example
    traces -> Schedule -> arenas       per batch, forward and backward over the same tables
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from foldbatch.blocks.block import RUNNERS, as_block
from foldbatch.blocks.lower import Lowered, depth, lower
from foldbatch.blocks.places import place_of
from foldbatch.blocks.tracer import MAX_CALLS
from foldbatch.blocks.values import is_int
from foldbatch.blocks.writer import shown
from foldbatch.derivatives import Differentiable
from foldbatch.engines.batch import Batch
from foldbatch.engines.engine import Engine, choose_engine
from foldbatch.engines.nonfinite import NotFinite
from foldbatch.engines.origins import find_nonfinite
from foldbatch.engines.planned import Planned
from foldbatch.engines.report import Report
from foldbatch.engines.results import Results
from foldbatch.engines.runner import Options, Runner, Work
from foldbatch.engines.threads import available_cores
from foldbatch.errors import BlockValueError, FoldbatchWarning, NoLossWarning, NotFiniteWarning
from foldbatch.model.model import FEW_CELLS, Model, find_cells
from foldbatch.params import Gradient
from foldbatch.scheduler.layout import find_layout
from foldbatch.scheduler.policies import find_policy
from foldbatch.scheduler.sharing import find_share
from foldbatch.scheduler.trace import Trace
from foldbatch.store import ParameterStore, name_parameters
from foldbatch.traced import Prepared, Traces
from foldbatch.types import describe_value


def compile(
    block: Any,
    backend: str = "auto",
    policy: str = "by_component",
    layout: str = "consumer",
    *,
    batched: bool = True,
    seed: int = 0,
    threads: int | None = None,
    kept_bytes: int | None = None,
    share: str | None = "leaves",
    max_calls: int = MAX_CALLS,
    debug: bool = False,
) -> Program:
    """Compile a block into a program.

    Args:
        block: a block (or what stands for one) whose input is one example.
        backend: ``numpy``; ``numba``, which compiles elementwise ops, products, whole recursions and
            schedules (in ten seconds or so the first time, half a second once they are on disk; see
            `foldbatch.engines.numba.compiling`); ``auto``, the faster of those installed; or ``reference``
            (one call at a
            time in float64: slow, right).
        policy: how calls are grouped: ``by_component``, ``by_agenda`` or ``by_depth``.
        layout: how values are numbered: ``consumer`` or ``producer``.
        batched: False runs one example at a time, for comparison.
        seed: from which parameters that have no value yet draw theirs.
        threads: into how many parts a large batch is cut, to run side by side; by default the
            cores at hand. Results differ with it by rounding only.
        kept_bytes: how much a call of a cell may keep for its backward pass; what is more is computed again
            there, as far as that is elementwise work. By default everything is kept, which is fastest.
        share: which identical calls of a batch run once: ``leaves``, those that read only a few integers;
            ``subtrees``, also those that read identical results (never calls with a loss, a metric, floats
            of the example, or random numbers); or None. Gradients are exact. `Program.describe` counts.
        max_calls: how many calls an example may make; one that makes more is refused before it fills the
            memory. Examples that share their parts do, where the parts are visited at each place
            (`ForwardDeclaration`).
        debug: check every schedule, and fill unused buffers with NaN.

    Raises:
        BlockTypeError: when the block is ill typed; the message says where.
        BlockValueError: when a number is none, or too small.
        UnknownNameError: when a backend, policy, layout or way to share does not exist.
        BackendError: when the backend is ``numba`` and that is not installed.

    >>> import foldbatch as fb
    >>> program = fb.compile(fb.Map(fb.Scalar() >> fb.Function(lambda x: x * x)))
    >>> [[float(x) for x in result] for result in program.run([[1, 2], [], [3]])]
    [[1.0, 4.0], [], [9.0]]
    """
    _refuse_no_count("seed", seed, 0)
    if threads is not None:
        _refuse_no_count("threads", threads, 1)
    if kept_bytes is not None:
        _refuse_no_count("kept_bytes", kept_bytes, 0)
    _refuse_no_count("max_calls", max_calls, 1)
    cores = available_cores() if threads is None else threads
    options = Options(choose_engine(backend), policy, layout, batched, cores, debug, share)
    find_layout(layout)
    find_share(share)
    lowered = lower(as_block(block), find_policy(policy), kept_bytes, max_calls)
    return Program(lowered, options, seed)


def _refuse_no_count(name: str, value: Any, least: int) -> None:
    if not is_int(value) or value < least:
        found = describe_value(value)
        raise BlockValueError(
            name, f"a whole number of {least} or more", found, "leave it out for the default"
        )


class Program(Differentiable):
    """A compiled block; made by `compile`.

    A program serves one thread at a time; others wait.
    """

    def __init__(self, lowered: Lowered, options: Options, seed: int) -> None:
        self.lowered = lowered
        self.options = options
        self.seed = seed
        self._step = 0
        self._drawn = 0  # the step that random numbers were last drawn for
        self._warned: set[type[FoldbatchWarning]] = set()
        self._params = ParameterStore(name_parameters(lowered.model.parameters))
        for name, parameter in self._params.parameters.items():
            parameter.initialize(seed, name)
        self._runner = Runner(lowered.model, options, seed)
        self._params.updates = self._runner.engine.updates
        self._traces = Traces(lowered, self._runner.plan)

    def __repr__(self) -> str:
        numbers = sum(parameter.type.size for parameter in self._params.parameters.values())
        parameters = f"{len(self._params)} parameters ({numbers:,} numbers)"
        cells = f"{len(self.model.cells)} cells"
        return f"Program({shown(self.lowered.block)}, {cells}, {parameters}, backend {self.engine.name})"

    @property
    def params(self) -> ParameterStore:
        """The parameters: a mapping from names to the arrays that the program computes with.

        An item can be assigned (``program.params["w"] = array``) or changed in place. Assigning all of them
        (``program.params = saved``) is ``program.params.update(saved, strict=True)``: arrays are copied into
        the parameters, or nothing is changed at all; see `foldbatch.store.ParameterStore.update` for errors.

        >>> import foldbatch as fb
        >>> w = fb.Parameter([2], init=1.0, name="w")
        >>> program = fb.compile(fb.Vector(2) >> fb.Function(lambda x: x * w))
        >>> program.params = {"w": [3, 4]}
        >>> program.run([[1, 1]])
        [array([3., 4.], dtype=float32)]
        """
        return self._params

    @params.setter
    def params(self, saved: Any) -> None:
        self._params.load(saved, {}, strict=True)

    @property
    def model(self) -> Model:
        """What was made of the block: cells, and how they are connected."""
        return self.lowered.model

    @property
    def engine(self) -> Engine:
        """What runs the program: the kernels of the backend it was compiled for."""
        return self._runner.engine

    # -- examples to traces

    def prepare(self, examples: Iterable[Any]) -> list[Prepared]:
        """Trace examples ahead; the results stand for them in later calls.

        A `foldbatch.trees.Tree` cannot change, so its trace is kept anyway; of other examples
        this is the way to trace only once.

        Raises:
            ExampleError: when an example does not fit the block.
        """
        return [Prepared(trace, self) for trace in self._trace_all(examples)]

    def plan(self, examples: Iterable[Any] | Planned) -> Planned:
        """Make a batch ready: traced, cut into parts and scheduled; the result stands for it in later calls.

        It does not depend on parameters, so a batch that is run again and again need be planned only
        once, and the next batch may be planned in another thread while one runs
        (`foldbatch.train.prefetched`).

        Raises:
            ExampleError: when an example does not fit the block, or was prepared or planned by another
                program.

        >>> import foldbatch as fb
        >>> program = fb.compile(fb.Map(fb.Scalar()) >> fb.Sum())
        >>> planned = program.plan([[1, 2], [], [3]])
        >>> planned, [float(x) for x in program.run(planned)]
        (Planned(3 examples in 1 parts), [3.0, 0.0, 3.0])
        """
        batch = self._batch(examples)
        return Planned(self._runner.plan(batch) if isinstance(batch, list) else batch, self)

    def schedule(self, examples: Iterable[Any] | Planned) -> Batch:
        """Return the schedule of a batch that runs whole, as `describe` runs it, with its merged traces.

        Raises:
            ExampleError: when an example does not fit the block, or was prepared or planned by another
                program.
        """
        return self._runner.scheduled(self._trace_all(examples))

    def _batch(self, examples: Iterable[Any] | Planned) -> Work:
        return self._traces.work(examples, self)

    def _trace_all(self, examples: Iterable[Any] | Planned) -> list[Trace]:
        return self._traces.all(examples, self)

    # -- running

    def run(self, examples: Iterable[Any] | Planned) -> Results:
        """Return one result per example, in order, with metrics and the summed loss.

        Raises:
            ExampleError: when an example does not fit the block; nothing has changed then.
        """
        results = self._runner.run(self._batch(examples))
        self._look_at(results.loss)
        return results

    def value_and_grad(
        self, examples: Iterable[Any] | Planned, *, step: int | None = None
    ) -> tuple[float, dict[str, Gradient]]:
        """Return the float sum of all losses over the batch, and its gradients by parameter name.

        A gradient has its parameter's shape; that of an embedding is a `SparseRows`, whose
        `dense()` does. Frozen parameters have none. Parameters are not changed.

        Random numbers, as of `Dropout`, are drawn anew at each call; the same `step`, a number, draws
        the same again.

        Raises:
            ExampleError: when an example does not fit the block; nothing has changed then.

        Warns once a program: `NotFiniteWarning`, when the loss is NaN or infinite (see `find_nan`), and
        `NoLossWarning`, when the model has no `Loss` block.
        """
        loss, gradients = self._runner.value_and_grad(self._batch(examples), self._drawing(step))
        self._look_at(loss, training=True)
        named = self.params.parameters.items()
        return loss, {name: gradients[parameter] for name, parameter in named if parameter in gradients}

    def _drawing(self, step: int | None) -> int:
        """Return the step to draw random numbers for: a new one, if none is given."""
        if step is None:
            step, self._step = self._step, self._step + 1
        _refuse_no_count("step", step, 0)
        self._drawn = step
        return step

    # -- losses that are not finite

    def find_nan(self, examples: Iterable[Any] | Planned, *, step: int | None = None) -> NotFinite | None:
        """Return where a loss begins to be NaN or infinite, else a gradient, a metric or a result, else None.

        It is the first op whose result is not finite while its operands are, with example, block and values.
        The examples are evaluated one by one, op by op, as they are trained, with the present parameters and
        in the precision of the program: that is slow, and can differ from a batch by rounding.

        Args:
            examples: the batch.
            step: the step that random numbers are drawn for; by default that of the last call.

        Raises:
            ExampleError: when an example does not fit the block.

        >>> import foldbatch as fb
        >>> ratio = fb.Record({"a": fb.Scalar(), "b": fb.Scalar()}) >> fb.Function(lambda a, b: a / b)
        >>> program = fb.compile(ratio >> fb.Loss())
        >>> program.find_nan([{"a": 1, "b": 2}, {"a": 1, "b": 0}])
        model at example 1: divide (forward) yields float32 inf
          of float32 1.
          of float32 0.
          so that the loss is not finite
        >>> program.find_nan([{"a": 1, "b": 2}]) is None
        True
        """
        given = examples if isinstance(examples, Planned) else list(examples)
        traces = self._trace_all(given)
        drawn = self._drawn if step is None else step
        _refuse_no_count("step", drawn, 0)
        names = {parameter: name for name, parameter in self.params.parameters.items()}
        dtype = "float64" if self.engine.name == "reference" else None
        found = find_nonfinite(self.model, traces, self.seed, drawn, names, dtype)
        if found is None or isinstance(given, Planned) or isinstance(given[found.example], Prepared):
            return found
        place = place_of(self.lowered.tracer, given[found.example], found.cell, found.call)
        return replace(found, place=place)

    def _look_at(self, loss: float, *, training: bool = False) -> None:
        """Warn, once a program, of a loss that is not finite, or of a model to be trained that has none."""
        warning: FoldbatchWarning
        if not math.isfinite(loss):
            fix = "call program.find_nan(examples)"
            warning = NotFiniteWarning("loss", "a finite number", str(loss), fix)
        elif training and loss == 0 and not any(cell.built.losses for cell in self.model.cells):
            fix = "end a branch of it with Loss, for example AllOf(Identity(), Loss())"
            warning = NoLossWarning("value_and_grad", "a model with a Loss block", "none", fix)
        else:
            return
        if type(warning) not in self._warned:
            self._warned.add(type(warning))
            warnings.warn(warning, stacklevel=3)

    # -- reports

    def describe(self, examples: Iterable[Any] | Planned, *, compare: bool = True) -> Report:
        """Return a report on one batch of examples: calls, steps, time, memory, and what to try.

        The batch is run whole, on one thread; parameters are not changed. A single example need not be in a
        list, unless it is a list or tuple itself.

        Args:
            examples: the batch.
            compare: whether the batch runs once before it is timed, and then with other policies and ways to
                share where these may be quicker. False times the first run, with all that it has to make.

        Raises:
            ExampleError: when an example does not fit the block.
        """
        batch_of = examples if isinstance(examples, list | tuple | Planned) else [examples]
        start = time.perf_counter()
        traces = self._trace_all(batch_of)
        phases = {"trace": time.perf_counter() - start}
        return replace(
            self._runner.report(traces, phases, compare=compare), program=self.lowered.tracer.source
        )

    def kernels(self, name: str = "", *, whole: bool = False) -> str:
        """Return generated source: the tracing program, and what the engine made of every cell.

        Of more than a few cells it is a list of cells, a line each.

        Args:
            name: the name of a cell, or a part of names: the kernels of these cells alone.
            whole: everything, however many cells there are.

        Raises:
            UnknownNameError: when no cell has such a name.
        """
        cells, source = self.model.cells, self._runner.engine.source
        chosen = find_cells(cells, name, "kernels")
        if name:
            return source(chosen)
        if whole or len(cells) <= FEW_CELLS:
            return f"{self.lowered.tracer.source}\n\n{source(chosen)}"
        lines = [f"the tracing program: {len(self.lowered.tracer.source.splitlines())} lines"]
        lines += [f"{cells[k].name}: {len(source([k]).splitlines())} lines" for k in chosen]
        lines.append("kernels(name) shows the cells whose names contain it, kernels(whole=True) everything")
        return "\n".join(lines)

    def depth(self, example: Any) -> int:
        """Return the longest chain of calls that compute something, for one example."""
        return depth(self.model, *self._trace_all([example]))


def _evaluate(block: Any, example: Any, backend: str) -> Any:
    # for a single example no compiled loops are worth waiting for
    results = compile(block, "numpy" if backend == "auto" else backend).run([example])
    if not results.metrics:
        return results[0]
    return results[0], {
        name: [m.values[i, ...] for i in range(len(m))] for name, m in results.metrics.items()
    }


RUNNERS["eval"] = _evaluate
RUNNERS["max_depth"] = lambda block, example: compile(block, "numpy").depth(example)
