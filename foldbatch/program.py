"""A compiled block: a `Program`, which runs any mixture of examples at once.

What is made of what, and when::

    block -> cells, tracer             once, in `compile`
    example -> Trace                   once per example
    traces -> Schedule -> arenas       per batch, forward and backward over the same tables
"""

from __future__ import annotations

import hashlib
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NoReturn

from foldbatch.blocks.lower import Lowered, depth
from foldbatch.blocks.places import place_of
from foldbatch.blocks.values import refuse_no_count
from foldbatch.blocks.writer import shown
from foldbatch.capacities import Capturing, captures
from foldbatch.derivatives import Differentiable
from foldbatch.engines.batch import Batch
from foldbatch.engines.engine import Engine
from foldbatch.engines.nonfinite import NotFinite, look_for_not_finite
from foldbatch.engines.origins import find_nonfinite
from foldbatch.engines.pending import Pending
from foldbatch.engines.planned import Planned
from foldbatch.engines.report import Report
from foldbatch.engines.results import Results, Step
from foldbatch.engines.runner import Options, Work
from foldbatch.errors import (
    BlockTypeError,
    FoldbatchWarning,
    NoLossWarning,
    NotFiniteWarning,
    counted,
    frames_inside,
)
from foldbatch.model.model import FEW_CELLS, Model, find_cells
from foldbatch.params import Gradient, Parameter
from foldbatch.preparing import tracing
from foldbatch.profiling import Profiled
from foldbatch.saving import Savable
from foldbatch.scheduler.trace import Trace
from foldbatch.store import ParameterStore, name_parameters
from foldbatch.traced import Prepared, digests, listed, several_of
from foldbatch.types import describe_value
from foldbatch.variants import Variants


class Program(Differentiable, Profiled, Savable, Capturing):
    """A compiled block; made by `compile`.

    Several threads may use a program at once: their batches run one after the other, but their examples are
    traced side by side, so the block's Python functions must bear that. After a fork the program works in the
    child, too.

    Attributes:
        steps_drawn: the number of the next step that random numbers are drawn for.
    """

    def __init__(self, lowered: Lowered, options: Options, seed: int) -> None:
        self.lowered = lowered
        self.options = options
        self.seed = seed
        self.steps_drawn = 0
        self._drawn = 0  # the step that random numbers were last drawn for
        self._warned: set[type[FoldbatchWarning]] = set()
        self._params = ParameterStore(name_parameters(lowered.model.parameters))
        for name, parameter in self._params.parameters.items():
            parameter.initialize(seed, name)
        self._variants = Variants(lowered, options, seed)
        self._runner, self._traces = self._variants.full.runner, self._variants.full.traces
        self._params.updates = self._runner.engine.updates

    def __repr__(self) -> str:
        numbers = sum(parameter.type.size for parameter in self._params.parameters.values())
        parameters = f"{counted(len(self._params), 'parameter')} ({counted(numbers, 'number')})"
        cells = counted(len(self.model.cells), "cell")
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

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what decides whether another program can run what this one prepared or planned."""
        options = self.options
        work = [digests(self.lowered, options.policy), options.layout, options.share, options.batched]
        return hashlib.sha256(repr(work).encode()).hexdigest()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        fix = "program.save(path) keeps it in a file; or pickle the block, and dict(program.params) with it"
        expected, found = "what can be pickled or copied", "a program, whose kernels belong to its process"
        raise BlockTypeError("Program", expected, found, fix)

    # -- examples to traces

    def prepare(
        self, examples: Iterable[Any], *, processes: int | None = None, progress: bool = True
    ) -> list[Prepared]:
        """Trace examples ahead; the results stand for them in later calls.

        A `foldbatch.trees.Tree` cannot change, so its trace is kept anyway; of other examples this is the way
        to trace only once. Very many are traced in worker processes if all functions are known to be pure.
        Where you ask for workers, what another function changes is changed in its worker alone.

        Args:
            examples: as for `run`.
            processes: how many workers, 1 for none; by default one for each core, where they pay.
            progress: whether a terminal shows a bar when this takes more than a second.

        Raises:
            ExampleError: when an example does not fit the block.
            BlockValueError: when `processes` is no whole number of 1 or more.
            BackendError: when a worker process ends before its work does.
        """
        trace_all = tracing(self.lowered.tracer, processes, progress=progress)
        return [Prepared(trace, self) for trace in self._traces.all(examples, self, trace_all)]

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

    def run(
        self, examples: Iterable[Any] | Planned, *, losses: bool = False, metrics: bool = False
    ) -> Results:
        """Return one result per example, in order; with losses and metrics where they are asked for.

        What serves only losses and metrics that are not asked for is neither read nor computed, so examples
        need no labels; functions given to blocks must not count on being called. Each other choice compiles
        the model once more, when it is first made. Examples prepared or planned hold all of the model.

        Args:
            examples: the batch.
            losses: whether the results have `loss`, the float sum of all, and `losses`, by name.
            metrics: whether they have `metrics`, by name.

        Raises:
            ExampleError: when an example does not fit the block; nothing has changed then.
            BlockTypeError: when `losses` or `metrics` is not a bool.

        Warns once a program: `NotFiniteWarning`, when losses are asked for and are NaN or infinite.

        >>> import foldbatch as fb
        >>> error = fb.Record((fb.Scalar(), fb.Scalar())) >> fb.Function(lambda x, y: (x - y) ** 2)
        >>> program = fb.compile(fb.AllOf(fb.GetItem(0) >> fb.Scalar(), error >> fb.Loss()) >> fb.GetItem(0))
        >>> program.run([(1, 3), (2, 2)], losses=True).loss, program.run([(5, "unknown")])
        (4.0, [array(5., dtype=float32)])
        """
        asked = {"losses": losses, "metrics": metrics}
        for name, value in asked.items():
            if not isinstance(value, bool):
                fix = f"results.{name} has all of them by name"
                raise BlockTypeError(f"run {name}", "True or False", describe_value(value), fix)
        asides = frozenset(name for name, value in asked.items() if value)
        batch = examples if isinstance(examples, Planned) else listed(examples)
        variant = self._variants.for_run(batch, asides)
        results = variant.runner.run(variant.traces.work(batch, self), asides=asides)
        if losses:
            self._look_at(results.loss)
        return results

    def value_and_grad(
        self, examples: Iterable[Any] | Planned, *, step: int | None = None, numbers: Sequence[int] = ()
    ) -> tuple[float, dict[str, Gradient]]:
        """Return the float sum of all losses over the batch, and its gradients by parameter name.

        A gradient has its parameter's shape; that of an embedding is a `SparseRows`, whose
        `dense()` does. Frozen parameters have none. Parameters are not changed.

        Random numbers, as of `Dropout`, are drawn anew at each call; the same `step`, a number, draws
        the same again. They depend on examples' numbers in the batch; `numbers` gives others, ``[N]``.

        Raises:
            ExampleError: when an example does not fit the block; nothing has changed then.
            BlockValueError: when `numbers` has not one whole number for each example.

        Warns once a program: `NotFiniteWarning`, when the loss or a gradient is NaN or infinite (see
        `find_nan`), and `NoLossWarning`, when the model has no `Loss` block.
        """
        loss, gradients = self._runner.value_and_grad(self._batch(examples), self._drawing(step), numbers)
        self._look_at(loss, named := self._named(gradients))
        return loss, named

    def step(self, examples: Iterable[Any] | Planned, *, step: int | None = None) -> Step:
        """Return losses, gradients, results and metrics of one training pass.

        Loss and gradients are those of `value_and_grad`, which says more of them, of its arguments and
        errors. Results and metrics are what training computes: `Dropout` drops.

        >>> import foldbatch as fb
        >>> w = fb.Parameter([], init=3.0, name="w")
        >>> program = fb.compile(fb.Scalar() >> fb.Function(lambda x: w * x) >> fb.Loss("product"))
        >>> made = program.step([1, 2])
        >>> made.loss, made.losses, made.gradients
        (9.0, {'product': 9.0}, {'w': array(3., dtype=float32)})
        """
        results, gradients = self._runner.step(self._batch(examples), self._drawing(step))
        named = self._named(gradients)
        self._look_at(results.loss, named)
        return Step(results.loss, results.losses, named, results, results.metrics)

    def _named(self, gradients: Mapping[Parameter, Gradient]) -> dict[str, Gradient]:
        named = self.params.parameters.items()
        return {name: gradients[parameter] for name, parameter in named if parameter in gradients}

    def _drawing(self, step: int | None) -> int:
        """Return the step to draw random numbers for: a new one, if none is given."""
        if step is None:
            step, self.steps_drawn = self.steps_drawn, self.steps_drawn + 1
        refuse_no_count("step", step, 0)
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
        given = examples if isinstance(examples, Planned) else list(listed(examples))
        traces = self._trace_all(given)
        drawn = self._drawn if step is None else step
        refuse_no_count("step", drawn, 0)
        names = {parameter: name for name, parameter in self.params.parameters.items()}
        dtype = "float64" if self.engine.name == "reference" else None
        found = find_nonfinite(self.model, traces, self.seed, drawn, names, dtype)
        if found is None or isinstance(given, Planned) or isinstance(given[found.example], Prepared):
            return found
        place = place_of(self.lowered.tracer, given[found.example], found.cell, found.call)
        return replace(found, place=place)

    def _look_at(self, loss: float, gradients: Mapping[str, Gradient] | None = None) -> None:
        """Warn, once a program, of what is not finite, or of a model to be trained that has no loss.

        Where the loss is still to be read, it is looked at when somebody reads it.
        """
        trains, bad = gradients is not None, None
        if isinstance(loss, Pending):
            if gradients and NotFiniteWarning not in self._warned:
                bad = look_for_not_finite(gradients, self._params.updates)
            loss.then(partial(self._warn_of, bad=bad, trains=trains))
        else:
            if gradients and math.isfinite(loss) and NotFiniteWarning not in self._warned:
                bad = look_for_not_finite(gradients, self._params.updates)
            self._warn_of(loss, bad, trains=trains)

    def _warn_of(self, loss: float, bad: Callable[[], str | None] | None, *, trains: bool) -> None:
        """Warn of a loss; `bad` tells the name of a gradient that is not finite."""
        warning: FoldbatchWarning
        fix = "call program.find_nan(examples)"
        if not math.isfinite(loss):
            warning = NotFiniteWarning("loss", "a finite number", str(loss), fix)
        elif bad is not None and (name := bad()) is not None:
            warning = NotFiniteWarning(f"{name} gradient", "finite numbers", "a NaN or an infinity", fix)
        elif trains and loss == 0 and not any(cell.built.losses for cell in self.model.cells):
            fix = "end a branch of it with Loss, for example AllOf(Identity(), Loss())"
            warning = NoLossWarning("value_and_grad", "a model with a Loss block", "none", fix)
        else:
            return
        if type(warning) not in self._warned:
            self._warned.add(type(warning))
            warnings.warn(warning, stacklevel=frames_inside())

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
        start = time.perf_counter()
        traces = self._trace_all(several_of(examples))
        report = self._runner.report(traces, {"trace": time.perf_counter() - start}, compare=compare)
        return replace(report, program=self.lowered.tracer.source, captures=captures(self.engine))

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
