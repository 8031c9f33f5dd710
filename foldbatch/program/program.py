"""A compiled block: a `Program`, which runs any mixture of examples at once."""

import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from numpy.typing import ArrayLike

from foldbatch.blocks.drafts import refuse_no_count
from foldbatch.engines.batch import Planned, ScheduledBatch
from foldbatch.engines.cotangents import seeds_of
from foldbatch.engines.engine import Engine
from foldbatch.engines.nonfinite import NotFinite
from foldbatch.engines.origins import find_nonfinite
from foldbatch.engines.report import Captures, Report
from foldbatch.engines.results import Results, StepResult
from foldbatch.engines.runner import SECONDS, TURNS, Options, Runner
from foldbatch.errors import BlockTypeError, ExampleTypeError, counted
from foldbatch.model.model import FEW_CELLS, Model, find_cells
from foldbatch.model.rereading import Obstacle, Snapshot, iterator_in, obstacle, obstacles
from foldbatch.model.tracer import Tracer
from foldbatch.model.weighted import example_weights
from foldbatch.params.gradients import BatchGradients, by_name
from foldbatch.params.parameters import Array, Parameter, ParameterStore
from foldbatch.program.attributing import Attribution, explained
from foldbatch.program.deciding import Deciding
from foldbatch.program.predicting import predictions
from foldbatch.program.saving import Notes, write
from foldbatch.program.traced import Prepared, in_parts, listed, same_trace, several_of, trace_in_parts
from foldbatch.program.variants import Pullback, ReadyModel, Tangents, Variants, captures, learned
from foldbatch.program.watching import Warned, profiled
from foldbatch.scheduler.trace import Trace
from foldbatch.static.graph import Node
from foldbatch.system.closed import Closed
from foldbatch.system.showing import Printed
from foldbatch.timelines import Timeline
from foldbatch.types import describe_value, truth

SHOWN_LINES = 20  # lines of cells, and of parameters, in a notebook


# Method names of other libraries, and ours for each.
ELSEWHERE = {
    **dict.fromkeys(("forward", "apply"), "run(examples) returns results"),
    **dict.fromkeys(
        ("parameters", "named_parameters", "state_dict", "load_state_dict", "weights"), "see params"
    ),
    **dict.fromkeys(
        ("fit", "train_step", "compile"), "fb.train.Trainer(program, optimizer).fit(examples, epochs=3)"
    ),
    **dict.fromkeys(("train", "eval"), "value_and_grad(examples) trains; run(examples) drops nothing"),
    **dict.fromkeys(("to", "cuda", "cpu"), 'fb.compile(model, "cuda") names the backend'),
    **dict.fromkeys(
        ("backward", "grad", "gradients", "zero_grad"), "value_and_grad(examples) returns gradients"
    ),
}


def _count(where: str, value: Any) -> int:
    refuse_no_count(where, value, 0)
    return int(value)


class Program(Closed, Printed):
    """A compiled block; made by `compile`.

    Several threads may use a program at once: batches run one after the other, but examples are traced side
    by side, which the block's Python functions must bear. After a fork the program works in the child, too.

    Examples are given in any iterable, or as what `prepare` and `plan` made of them. One that does not fit
    the model, or was made ready by another program, raises `ExampleError`; nothing has changed then.

    Attributes:
        lowered: what the user's model became: the `foldbatch.model.tracer.Tracer`.
        steps_drawn: the number of the next step that random numbers are drawn for.
        notes: of the file that the program was loaded from; else empty.
    """

    settable = {"notes": None, "steps_drawn": _count}  # noqa: RUF012

    def __init__(
        self,
        lowered: Tracer,
        options: Options,
        seed: int,
        parameters: Mapping[str, Parameter] = MappingProxyType({}),
        *,
        checks_seed: bool = False,
    ) -> None:
        self.lowered = lowered
        self.options = options
        self.seed = seed
        self.steps_drawn = 0
        self._runs = count()  # the steps of runs, apart from those of training, which no run must change
        self.notes: Notes = {}
        self._drawn = 0  # the step that random numbers were last drawn for
        self._params = ParameterStore(parameters)
        self._deciding = Deciding(options, seed, self._admit)
        self._warned = Warned(self._params)
        self._checks_seed = checks_seed
        self._variants = Variants(lowered, self._made_ready)
        self._params.updates = self._runner.engine.updates

    def _made_ready(self, tracer: Tracer) -> ReadyModel:
        """Make a tracer's model ready; the parameters that are new in it get their names and numbers."""
        self._admit(tracer.model.parameters)
        return ReadyModel(tracer, self.options, self.seed, self._params.parameters)

    def _admit(self, parameters: Sequence[Parameter]) -> None:
        """Add new parameters to the program's and draw their numbers; warn of those that ignore the seed."""
        admitted = {*self._params.parameters.values()}
        new = [parameter for parameter in parameters if parameter not in admitted]
        if new:
            self._params.admit(new)
            deaf = self._deaf(new) if self._checks_seed else []
            for name, parameter in self._params.parameters.items():
                parameter.initialize(self.seed, name)
            if deaf:
                self._warned.of_seed(self.seed, deaf)

    def _deaf(self, parameters: Collection[Parameter]) -> list[str]:
        """Return the names of those parameters that have other values than the program's seed draws."""
        named = self._params.parameters.items()
        return [name for name, p in named if p in parameters and not p.follows(self.seed)]

    @property
    def _ready(self) -> ReadyModel:
        return self._variants.full.ready

    @property
    def _runner(self) -> Runner:
        return self._ready.runner

    def __repr__(self) -> str:
        numbers = sum(parameter.type.size for parameter in self._params.parameters.values())
        parameters = f"{counted(len(self._params), 'parameter')} ({counted(numbers, 'number')})"
        cells = counted(len(self.model.cells), "cell")
        return f"Program({self.lowered.name}, {cells}, {parameters}, backend {self.engine.name})"

    def __str__(self) -> str:
        def types(nodes: Iterable[Node]) -> str:
            return ", ".join(f"[{x.type}, ...]" if x.axis.rank == 2 else str(x.type) for x in nodes)

        cells = [f"  {c.name}: {types(c.graph.inputs)} -> {types(c.graph.results)}" for c in self.model.cells]
        lines = [repr(self)]
        for part in (["cells", *cells], repr(self._params).splitlines()):
            lines += [*part[:SHOWN_LINES], *["  ..."] * (len(part) > SHOWN_LINES)]
        return "\n".join(lines)

    @property
    def params(self) -> ParameterStore:
        """The parameters: a mapping from names to the arrays that the program computes with.

        An item can be assigned (``program.params["w"] = array``) or changed in place. Assigning all of them
        (``program.params = saved``) is ``program.params.update(saved, strict=True)``: arrays are copied into
        the parameters, or nothing is changed at all; see `ParameterStore.update` for errors.

        >>> w = fb.Parameter([2], init=1.0, name="w")
        >>> program = fb.compile(fb.Vector(2) >> fb.Function(lambda x: x * w))
        >>> program.params = {"w": [3, 4]}
        >>> program.run([[1, 1]])
        [array([3., 4.], dtype=float32)]
        """
        return self._params

    @params.setter
    def params(self, saved: object) -> None:
        self._params.load(saved, {}, strict=True)

    @property
    def model(self) -> Model:
        """The program's model: cells, and how they are connected."""
        return self.lowered.model

    @property
    def engine(self) -> Engine:
        """The engine of the program: the kernels of the backend that it was compiled for."""
        return self._runner.engine

    def _run_on(self, options: Options) -> None:
        """Let an engine of other options run the program from now on.

        What is known of the model and of examples stays, as do parameters; prepared and planned examples
        stand for them as before.
        """
        with self.lowered.lock():
            self._variants.run_on(options)
            self._deciding.run_on(options)
            self.options = options
            self._params.updates = self._runner.engine.updates

    @property
    def fingerprint(self) -> str:
        """A digest that is equal in programs which can run each other's prepared or planned examples."""
        return self._ready.fingerprint

    if not TYPE_CHECKING:  # for checkers, names that do not exist stay mistakes

        def __getattr__(self, name: str) -> NoReturn:
            hint = f"; {ELSEWHERE[name]}" if name in ELSEWHERE else ""
            raise AttributeError(f"a Program has no {name!r}{hint}", name=name, obj=self)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        fix = "program.save(path) keeps it in a file; or pickle the block, and dict(program.params) with it"
        expected, actual = "what can be pickled or copied", "a program, whose kernels belong to its process"
        raise BlockTypeError("Program", expected, actual, fix)

    def prepare(self, examples: Iterable[object], *, progress: bool = True) -> list[Prepared]:
        """Trace examples ahead; the results stand for them in later calls.

        A `foldbatch.trees.Tree` cannot change, so its trace is kept anyway; others are traced once by this.

        Args:
            examples: new ones.
            progress: whether a terminal shows a bar when this takes more than a second.
        """
        trace_all = partial(trace_in_parts, self.lowered, truth("prepare progress", progress))
        ready, traces = self._variants.full.all(examples, trace_all)
        return [Prepared(trace, ready) for trace in traces]

    def plan(self, examples: Iterable[object] | Planned) -> Planned:
        """Make a batch ready: traced, cut into parts and scheduled; the result stands for it in later calls.

        It does not depend on parameters, so a batch that is run again and again need be planned only
        once, and the next batch may be planned in another thread while one runs
        (`foldbatch.train.prefetched`).

        >>> program = fb.compile(fb.Map(fb.Scalar()) >> fb.Sum())
        >>> planned = program.plan([[1, 2], [], [3]])
        >>> planned, [float(x) for x in program.run(planned)]
        (Planned(3 examples in 1 parts), [3.0, 0.0, 3.0])
        """
        ready, batch = self._variants.full.work(examples)
        return Planned(ready.runner.plan(batch) if isinstance(batch, list) else batch, ready)

    def _traced(self, examples: Any, step: int | None = None) -> tuple[ReadyModel, list[Trace]]:
        decide = self._deciding.decide(self._upcoming(step), training=True)
        return self._variants.full.all(examples, partial(self.lowered.trace_all, decide=decide))

    def _trace_all(self, examples: Iterable[object] | Planned) -> list[Trace]:
        return self._traced(examples)[1]

    def _learn(self, examples: Sequence[object], why: str) -> None:
        """Learn the cells, wires and parameters that examples bring, in their order.

        Errors are those of `_read_first`.
        """
        new = [example for example in examples if not isinstance(example, Prepared)]
        count = 0
        for part in in_parts(new, "learning"):
            self._read_first(part, why, count)
            count += len(part)

    def _read_first(self, examples: object, why: str, first: int = 0) -> tuple[ReadyModel, list[Trace]]:
        """Return the traces of examples that are read again later, and the model that runs them.

        An example may be changed by its reading, if a second reading gives the same.

        Args:
            examples: the examples; only those in a list or a tuple are the same objects when they are read
                again.
            why: says what for, in errors; empty where they are not read again.
            first: the number of the first one, for errors.

        Raises:
            ExampleTypeError: when one cannot be read again.
        """
        if not why or not isinstance(examples, list | tuple) or Prepared in {*map(type, examples)}:
            return self._traced(examples)
        before = Snapshot(examples)

        def refuse(change: Obstacle) -> NoReturn:
            expected = f"data that can be read again, as {why}"
            raise ExampleTypeError(f"example {first + change.place}", expected, change.actual, change.fix)

        for place, example in enumerate(examples):
            if (iterator := iterator_in(example)) is not None:
                refuse(Obstacle(place, describe_value(iterator), "give a list of its items"))
        ready, traces = self._traced(examples)
        changed = [*obstacles(examples, before, hidden=False)]
        if changed:
            changed_examples = [examples[fault.place] for fault in changed]
            before = Snapshot(changed_examples)
            _, again = self._traced(changed_examples)
            still = {fault.place for fault in obstacles(changed_examples, before, hidden=False)}
            for k, fault in enumerate(changed):
                if k in still or not same_trace(traces[fault.place], again[k]):
                    refuse(fault)
        return ready, traces

    def warm(self, examples: Iterable[object], batch_size: int = 64, batches: int = 32) -> Captures | None:
        """Learn cells, parameters and batch sizes from examples ahead, so that first batches need not pause.

        Of a plain function: its cells, wires and parameters; a program of blocks knows all of them. On a GPU:
        how large batches are. One that fits into a graph that was captured before, a sequence of kernels with
        a capacity each, is one launch: in training, and in inference by `run` that asks for results alone.
        Nothing is launched here, and parameters are not changed.

        Args:
            examples: the data set, or enough of it.
            batch_size: examples of a batch, as it will be trained.
            batches: how many random batches are looked at.

        Returns:
            What was learned of capacities, as `describe` shows it; None on a CPU, which has none.

        Raises:
            ExampleTypeError: when an example in a list cannot be read again, as an iterator, or one from
                which the walk takes items.

        >>> program = fb.compile(lambda words: fb.tensor(len(words)), "numpy")
        >>> program.warm([["a", "b"]]) is None, len(program.model.cells)
        (True, 1)
        """
        refuse_no_count("batch_size", batch_size, 1)
        refuse_no_count("batches", batches, 1)
        batch = examples if isinstance(examples, Planned) else listed(examples)
        ready, traces = self._read_first(batch, "warm reads examples for runs to come")
        captures = learned(ready.runner, traces, batch_size, batches)
        if captures is not None:
            variant = self._variants.for_run(batch, frozenset())
            if variant is not self._variants.full:
                decide = self._deciding.decide(0, training=False)
                ready, traces = variant.all(batch, partial(variant.tracer.trace_all, decide=decide))
                learned(ready.runner, traces, batch_size, batches, training=False)
        return captures

    def debug(self, example: object) -> Any:
        """Run the plain function that was compiled on one example, each op at once, with real numbers.

        So print, pdb and breakpoints show numbers in the lines of the function, and those of cells.
        Parameters are the present ones; nothing is dropped, and random draws are not those of a run.

        Returns:
            A `foldbatch.functions.Seen`, with `result`, `loss`, `losses` and `metrics`.

        >>> def walk(numbers):
        ...     total = fb.tensor(0.0)
        ...     for x in numbers:
        ...         total = total + fb.tensor(x)
        ...         print(total)
        ...     return total
        >>> fb.compile(walk, "numpy").debug([1.0, 2.0]).result
        array(1., dtype=float32)
        array(3., dtype=float32)
        array(3., dtype=float32)
        """
        return self.lowered.debug(example, lambda parameter: self._admit([parameter]))

    def run(
        self,
        examples: Iterable[object] | Planned,
        *,
        losses: bool = False,
        metrics: bool = False,
        return_exceptions: bool = False,
        step: int | None = None,
    ) -> Results:
        """Return one result per example, in order; with losses and metrics where they are asked for.

        What serves only losses and metrics that are not asked for is neither read nor computed, so examples
        need no labels; functions given to blocks must not count on being called. Each other choice compiles
        the model once more, when it is first made. Examples prepared or planned hold all of the model.

        Args:
            examples: the batch.
            losses: whether the results have `loss`, the float sum of all, and `losses`, by name.
            metrics: whether they have `metrics`, by name.
            return_exceptions: whether what a plain function raises for an example is its result, no error.
            step: where a model draws random numbers to infer, they are drawn anew at each call, those of the
                program's seed; the same step, a number, draws the same again.

        Raises:
            BlockTypeError: when an option is not a bool, or `return_exceptions` cannot be.

        Warns once a program: `NotFiniteWarning`, when losses are asked for and are NaN or infinite.

        >>> error = fb.Record((fb.Scalar(), fb.Scalar())) >> fb.Function(lambda x, y: (x - y) ** 2)
        >>> program = fb.compile(fb.AllOf(fb.GetItem(0) >> fb.Scalar(), error >> fb.Loss()) >> fb.GetItem(0))
        >>> program.run([(1, 3), (2, 2)], losses=True).loss, program.run([(5, "unknown")])
        (4.0, [array(5., dtype=float32)])
        """
        asides: frozenset[str] = frozenset()
        if not losses is metrics is return_exceptions is False:
            asked = {"losses": losses, "metrics": metrics}
            for name, value in (*asked.items(), ("return_exceptions", return_exceptions)):
                truth(f"run {name}", value)
            asides = frozenset([name for name, value in asked.items() if value])
        if step is None:
            step = next(self._runs)
        else:
            refuse_no_count("run step", step, 0)
        batch = examples if isinstance(examples, Planned) else listed(examples)
        decided = self._deciding.results(self.lowered, batch, asides, step, keep_going=return_exceptions)
        if decided is not None:
            return Results(decided)
        variant = self._variants.for_run(batch, asides)
        run_small = self._deciding.run_small(variant, asides, step)
        ready, work = variant.work(batch, self._deciding.decide(step, training=False), run_small)
        results = work if isinstance(work, Results) else ready.runner.run(work, step, asides)
        if losses:
            self._warned.look_at(self.model, results.loss)
        return results

    def value_and_grad(
        self,
        examples: Iterable[object] | Planned,
        *,
        step: int | None = None,
        numbers: Sequence[int] = (),
        weights: ArrayLike | None = None,
    ) -> tuple[float, BatchGradients[str]]:
        """Return the float sum of all losses over the batch, and its gradients by parameter name.

        A gradient has its parameter's shape; that of an embedding is a `SparseRows`, whose
        `dense()` does. Frozen parameters have none. Parameters are not changed. Gradients of parameters that
        no call of the batch has read are zeros, and ``gradients.unused`` has their names.

        Random numbers, as of `Dropout`, are drawn anew at each call; the same `step`, a number, draws
        the same again. They depend on examples' numbers in the batch; `numbers` gives others, ``[N]``.

        With `weights`, ``[N]``, the losses of each example are multiplied by its weight: 2 counts as two such
        examples, 0 as none. The cells that compute it are compiled at the first call.

        Raises:
            BlockValueError: when `numbers` has not one whole number for each example, or `weights` not one
                finite number of 0 or more.

        Warns once a program: `NotFiniteWarning`, when the loss or a gradient is NaN or infinite (see
        `find_nan`), and `NoLossWarning`, when the model has no `Loss` block.
        """
        drawn = self._upcoming(step)
        decide = self._deciding.decide(drawn, numbers, training=True)
        if weights is None:
            ready, work = self._variants.full.work(examples, decide)
            loss, gradients = ready.runner.value_and_grad(work, self._drawing(step, drawn), numbers)
        else:
            ready, traces = self._variants.full.all(examples, partial(self.lowered.trace_all, decide=decide))
            factors = example_weights("value_and_grad weights", weights, len(traces))
            runner = ready.derivatives.weighted
            loss, gradients = runner.value_and_grad(traces, self._drawing(step, drawn), numbers, factors)
        self._warned.look_at(self.model, loss, named := self._named(gradients))
        return loss, named

    def step(self, examples: Iterable[object] | Planned, *, step: int | None = None) -> StepResult:
        """Return losses, gradients, results and metrics of one training pass.

        Loss and gradients are those of `value_and_grad`, which says more of them, of its arguments and
        errors. Results and metrics are what training computes: `Dropout` drops.

        >>> w = fb.Parameter([], init=3.0, name="w")
        >>> program = fb.compile(fb.Scalar() >> fb.Function(lambda x: w * x) >> fb.Loss("product"))
        >>> made = program.step([1, 2])
        >>> made.loss, made.losses, made.gradients
        (9.0, {'product': 9.0}, {'w': array(3., dtype=float32)})
        """
        drawn = self._upcoming(step)
        ready, work = self._variants.full.work(examples, self._deciding.decide(drawn, training=True))
        results, gradients = ready.runner.step(work, self._drawing(step, drawn))
        self._warned.look_at(self.model, results.loss, named := self._named(gradients))
        return StepResult(results.loss, results.losses, named, results, results.metrics)

    def _named(self, gradients: BatchGradients[Parameter]) -> BatchGradients[str]:
        return by_name(gradients, self.params.parameters)

    def _upcoming(self, step: int | None) -> int:
        if step is not None:
            refuse_no_count("step", step, 0)
        return self.steps_drawn if step is None else step

    def _drawing(self, step: int | None, upcoming: int | None = None) -> int:
        """Return the step to draw random numbers for, and count it, if none is given."""
        drawn = self._upcoming(step) if upcoming is None else upcoming
        if step is None:
            self.steps_drawn = drawn + 1
        self._drawn = drawn
        return drawn

    def vjp(
        self,
        examples: Iterable[object] | Planned,
        cotangents: Iterable[object] | None = None,
        *,
        losses: bool | None = None,
        inputs: bool = False,
        step: int | None = None,
    ) -> Pullback:
        """Return the gradients that follow from cotangents of the results: a vector-Jacobian product.

        With cotangents that another program computed, a block can be one part of a larger model. With none,
        gradients come from the losses, and those of parameters are what `value_and_grad` returns. What is
        computed is what is trained: `Dropout` drops. Its cells are compiled at the first call.

        Args:
            examples: the batch.
            cotangents: for each example one value in the form of its result, arrays where that has tensors of
                floats; None for a part, or for an example, that has none.
            losses: whether gradients come from the losses, too; by default only where no cotangents are
                given.
            inputs: whether gradients of the floats that examples hold are wanted, too. They are found by the
                place and the block that reads a tensor, such as ``model['x'] Vector(3)``; their `values` are
                ``[m, *shape]``, one per visit, and `examples` and `nodes` tell whose they are, as of metrics,
                but in a recursion children come before parents.
            step: as for `value_and_grad`.

        Raises:
            ExampleError: also when a cotangent does not fit its result.

        >>> w = fb.Parameter([], init=3.0, name="w")
        >>> program = fb.compile(fb.Map(fb.Scalar() >> fb.Function(lambda x: w * x * x)))
        >>> found = program.vjp([[1, 2], [4]], [[1, 0.5], None], inputs=True)
        >>> found.gradients
        {'w': array(3., dtype=float32)}
        >>> for name, values in found.inputs.items():
        ...     print(name, values.values)
        model.map Scalar('float32') [6. 6. 0.]
        """
        ready, traces = self._traced(examples, step)
        results = [trace.result for trace in traces]
        seeds = None if cotangents is None else seeds_of(ready.model.result, results, cotangents)
        chosen = cotangents is None if losses is None else truth("vjp losses", losses)
        truth("vjp inputs", inputs)
        return ready.derivatives.vjp(traces, self._drawing(step), seeds, losses=chosen, inputs=inputs)

    def jvp(
        self, examples: Iterable[object] | Planned, tangents: Tangents, *, step: int | None = None
    ) -> tuple[float, float]:
        """Return the float sum of all losses, and its derivative as the parameters move along `tangents`.

        It is exact: no step is taken. The cells that compute it are compiled at the first call.

        Args:
            examples: the batch.
            tangents: by parameter name, an array of the parameter's shape, or a gradient; parameters
                that are not named stay where they are.
            step: as for `value_and_grad`.

        Raises:
            UnknownNameError: when there is no parameter of a name.
            ParameterError: when a tangent has another shape than its parameter, is not finite, or is
                one of a frozen parameter.

        Source: Baydin et al. 2018 (Automatic differentiation in machine learning), section 3.1.

        >>> w = fb.Parameter([], init=3.0, name="w")
        >>> program = fb.compile(fb.Scalar() >> fb.Function(lambda x: x * w * w) >> fb.Loss())
        >>> program.jvp([1, 2], {"w": 1.0})
        (27.0, 18.0)
        """
        ready, traces = self._traced(examples, step)
        return ready.derivatives.jvp(traces, tangents, self._drawing(step))

    def hvp(
        self, examples: Iterable[object] | Planned, tangents: Tangents, *, step: int | None = None
    ) -> dict[str, Array]:
        """Return the Hessian of the summed losses times `tangents`: an array per trainable parameter.

        That is how the gradients change as the parameters move along the tangents. Arguments and
        errors are those of `jvp`. The Hessian is never formed.

        Source: Pearlmutter 1994 (Fast exact multiplication by the Hessian), section 3.

        >>> w = fb.Parameter([], init=3.0, name="w")
        >>> program = fb.compile(fb.Scalar() >> fb.Function(lambda x: x * w * w) >> fb.Loss())
        >>> program.hvp([1, 2], {"w": 1.0})
        {'w': array(6., dtype=float32)}
        """
        ready, traces = self._traced(examples, step)
        return ready.derivatives.hvp(traces, tangents, self._drawing(step))

    def find_nan(self, examples: Iterable[object] | Planned, *, step: int | None = None) -> NotFinite | None:
        """Return where a loss begins to be NaN or infinite, else a gradient, a metric or a result, else None.

        It is the first op whose result is not finite while its operands are, with example, block and values.
        The examples are evaluated one by one, op by op, as they are trained, with the present parameters and
        in the precision of the program: that is slow, and can differ from a batch by rounding.

        Args:
            examples: the batch.
            step: the step that random numbers are drawn for; by default that of the last call.

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
        batch = examples if isinstance(examples, Planned) else list(listed(examples))
        drawn = self._upcoming(self._drawn if step is None else step)
        before = None if isinstance(batch, Planned) else Snapshot(batch)
        ready, traces = self._traced(batch, drawn)
        names = {parameter: name for name, parameter in self.params.parameters.items()}
        dtype = "float64" if self.engine.name == "reference" else None
        not_finite = find_nonfinite(ready.model, traces, self.seed, drawn, names, dtype)
        if (
            not_finite is None
            or isinstance(batch, Planned)
            or isinstance(batch[not_finite.example], Prepared)
        ):
            return not_finite
        example = batch[not_finite.example]
        if before is None or obstacle([example], before.tail(not_finite.example)) is not None:
            return not_finite  # the place is looked for by reading the example again
        place = self.lowered.place_of(example, not_finite.cell, not_finite.call)
        return replace(not_finite, place=place)

    def attribute(
        self, example: object, target: object = None, *, cotangent: object = None, steps: int = 20
    ) -> Attribution:
        """Return the parts of one example that decided a number of its result, by integrated gradients.

        The inputs are the floats of the example and those that its whole numbers stand for, such as the row
        of an `Embedding` that a word chooses. Integrated gradients go along the straight line from zeros to
        the inputs; their sum over all nodes is the number less that of zeros. The example is computed as
        `run` does, without dropout and losses, op by op in float64. Where computed numbers decide
        what a function calls, the decisions stay those of the example.

        Args:
            example: one example; a function reads it twice.
            target: which number: its place in the result, an int or a tuple of them, or a class that `notes`
                names; by default the greatest.
            cotangent: weights of the result's numbers, in its form, in the place of a target: their weighted
                sum is explained. So two scores are compared, or results of several tensors explained.
            steps: points on the line that are computed; each takes the time of one example.

        Raises:
            ExampleError: when the example does not fit the model, or the cotangent does not fit the result.
            BlockValueError: when the target is no place in the result.

        Source: Sundararajan, Taly and Yan 2017 (Axiomatic Attribution for Deep Networks), section 3.

        >>> words = fb.Scalar("int32") >> fb.Embedding(3, 2, [[0, 0], [1, 2], [5, 0]])
        >>> program = fb.compile(fb.Map(words) >> fb.Sum() >> fb.Function(lambda x: x * x), "numpy")
        >>> found = program.attribute([1, 2], target=0)
        >>> [(node.path, round(node.amount, 6), node.gradient.tolist()) for node in found.nodes]
        [('[0]', 6.0, [12.0, 0.0]), ('[1]', 30.0, [12.0, 0.0])]
        >>> found.number, found.baseline
        (36.0, 0.0)
        """
        refuse_no_count("attribute steps", steps, 1)
        batch = [example]
        variant = self._variants.for_run(batch, frozenset())
        decide = self._deciding.decide(0, training=False)
        before = Snapshot(batch)
        ready, (trace,) = variant.all(batch, partial(variant.tracer.trace_all, decide=decide))
        change = next(obstacles(batch, before, hidden=False), None)
        if change is not None:
            expected = "data that can be read again, as attribute reads it twice"
            raise ExampleTypeError("attribute", expected, change.actual, change.fix)
        return explained(
            ready.model,
            trace,
            variant.tracer.paths_of(example),
            {parameter: name for name, parameter in self._params.parameters.items()},
            example,
            target=target,
            cotangent=cotangent,
            classes=self.notes.get("classes") or (),
            steps=steps,
            seed=self.seed,
        )

    def describe(self, examples: Iterable[object] | Planned, *, compare: bool = True) -> Report:
        """Return a report on one batch of examples: calls, steps, time, memory, and what to try.

        The batch is run whole, on one thread; parameters are not changed. A single example need not be in a
        list, unless it is a list or tuple itself.

        Args:
            examples: the batch.
            compare: whether the batch is traced and run some times more, in turn with more calls shared where
                that may be quicker; medians count, and trees are traced once only. False times the first run,
                with all that it has to make.
        """
        batch = several_of(examples)
        truth("describe compare", compare)
        again = compare
        read = [x for x in batch if not isinstance(x, Prepared)] if isinstance(batch, list | tuple) else None
        before = Snapshot(read) if again and read is not None else None
        seconds: list[float] = []
        while not seconds or (again and len(seconds) <= TURNS and sum(seconds) < SECONDS):
            start = time.perf_counter()
            ready, traces = self._traced(batch)
            seconds.append(time.perf_counter() - start)
            again = again and (before is None or not [*obstacles(read or (), before, hidden=False)])
        phases = {"rounds" if self.lowered.decides else "trace": median(seconds[1:] or seconds)}
        report = ready.runner.report(traces, phases, compare=compare)
        remarks = tuple(self.lowered.remarks([cell.calls for cell in report.cells]))
        source = self.lowered.source
        return replace(report, program=source, captures=captures(self.engine), remarks=remarks)

    def kernels(self, name: str = "", *, whole: bool = False) -> str:
        """Return generated source: the tracing program, and the engine's kernels of every cell.

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
        if truth("kernels whole", whole) or len(cells) <= FEW_CELLS:
            return f"{self.lowered.source}\n\n{source(chosen)}"
        lines = [f"the tracing program: {len(self.lowered.source.splitlines())} lines"]
        lines += [f"{cells[k].name}: {len(source([k]).splitlines())} lines" for k in chosen]
        lines.append("kernels(name) shows the cells whose names contain it, kernels(whole=True) everything")
        return "\n".join(lines)

    def profile(
        self, examples: Iterable[object] | Planned, *, steps: int = 3, training: bool = True
    ) -> Timeline:
        """Return a timeline of one batch that is run several times: the start and duration of each part.

        Each step plans the batch anew: it traces the examples (trees are remembered), merges the traces,
        makes the schedule and readies the engine's table. Then it runs forward and, while training, backward.
        Before that the batch runs unwatched, so that kernels, memory and graphs are there. The host waits for
        a device after the last step only. Parameters are not changed. The rows are ``host``; on ``numpy`` and
        ``llvm``, whose levels are called one by one here, a row for each part of the batch that has a
        thread; on ``cuda`` the streams ``copies`` and ``compute``, timed by events.

        Args:
            examples: the batch. A single example need not be in a list, unless it is a list or tuple itself.
            steps: how often it runs.
            training: whether it runs forward and backward, else forward alone as `run` does.

        >>> program = fb.compile(fb.Map(fb.Scalar()) >> fb.Sum() >> fb.Loss(), "numpy")
        >>> timeline = program.profile([[1, 2], [3]], steps=2)
        >>> [span.name for span in timeline.spans if span.row == "host"][:6]
        ['trace', 'merge', 'schedule', 'ready', 'forward', 'backward']
        """
        refuse_no_count("profile steps", steps, 1)
        truth("profile training", training)
        batch = several_of(examples)
        ready = self._read_first(batch, "profile reads it once for each step")[0]
        return profiled(ready.runner, lambda: self._trace_all(batch), steps, training=training)

    def predict(self, structures: Iterable[object]) -> list[dict[str, Any]]:
        """Return the program's predictions for structures, as ``foldbatch predict`` prints them.

        That is ``{"label": name, "probabilities": {name: p, ...}}`` where `notes` name the classes,
        ``{"number": x}`` where they are an empty list, and ``{"result": r}`` where they have none, with lists
        for arrays and tuples. Structures are examples; those of a model of ``foldbatch train`` are trees,
        sentences or records without labels.

        Raises:
            ModelError: when the notes name another number of classes than there are scores, or a result is no
                data.

        >>> program = fb.compile(fb.Vector(2), "numpy")
        >>> program.notes = {"classes": ["no", "yes"]}
        >>> program.predict([[0, 9]])
        [{'label': 'yes', 'probabilities': {'no': 0.000123, 'yes': 0.999877}}]
        """
        return list(predictions([self], self.notes, listed(structures)))

    def save(self, path: str | os.PathLike[str], notes: Notes | None = None) -> None:
        """Write the program to a file, for `foldbatch.load`: its model, parameters and options, and no code.

        Functions are written by their import paths. Where one of a block has none, as a lambda has, or reads
        a layer that is not in the block, the file holds the parameters only, for `Block.load_parameters`, and
        a warning says why. Of a plain function the file holds where it, its cells and its layers are found,
        and what was learnt of it. The file is complete under its name, or the former one stays.

        Args:
            path: of the file.
            notes: data of yours, as the names of classes: a dict of what JSON has. By default those that the
                program was loaded with.

        Raises:
            ModelError: when the notes are not JSON data, or no import path leads to a plain function that was
                compiled, to a cell or to a layer that it calls.
            ParameterError: when a parameter is NaN or infinite. No file has been touched in either case.
            OSError: when the file cannot be written.

        Warns: `NotWholeWarning`, when `foldbatch.load` will not find all of the model in the file.

        >>> import tempfile
        >>> program = fb.compile(fb.Vector(2) >> fb.Linear(1, init="ones"), "numpy")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     program.save(f"{folder}/sum.safetensors")
        ...     fb.load(f"{folder}/sum.safetensors", "numpy").run([[1, 2]])
        [array([3.], dtype=float32)]
        """
        notes = self.notes if notes is None else notes
        self._admit(self.lowered.parameters)  # runs without losses have not asked for all
        write(path, self.lowered, self._params.parameters, self.options, self.seed, self.steps_drawn, notes)


def schedule(program: Program, examples: Iterable[object] | Planned) -> ScheduledBatch:
    """Return the schedule of a batch that runs whole, as `Program.describe` runs it, with its merged traces.

    Raises:
        ExampleError: when an example does not fit the model, or was prepared or planned by another program.
    """
    ready, traces = program._traced(examples)
    return ready.runner.scheduled(traces)
