"""A compiled block: ``compile(block) -> Program``, which runs any mixture of examples at once.

What is made of what, and when::

    block -> cells, tracer             once, in `compile`
    example -> Trace                   once per example
    traces -> Schedule -> arenas       per batch, forward and backward over the same tables
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

from foldbatch.blocks.block import RUNNERS, as_block
from foldbatch.blocks.lower import Lowered, depth, lower
from foldbatch.blocks.values import is_int
from foldbatch.derivatives import Derivatives, Pullback, Tangents
from foldbatch.engines.batch import Batch
from foldbatch.engines.cotangents import seeds_of
from foldbatch.engines.engine import Engine, choose_engine
from foldbatch.engines.planned import Planned
from foldbatch.engines.report import Report
from foldbatch.engines.results import Results
from foldbatch.engines.runner import Options, Runner, Work
from foldbatch.engines.threads import available_cores
from foldbatch.engines.visits import InputGradients
from foldbatch.errors import BlockValueError
from foldbatch.model.model import Model
from foldbatch.params import Array, Gradient, ParameterStore, name_parameters
from foldbatch.scheduler.layout import find_layout
from foldbatch.scheduler.policies import find_policy
from foldbatch.scheduler.sharing import find_share
from foldbatch.scheduler.trace import Trace
from foldbatch.traced import Prepared, Traces
from foldbatch.types import describe_value


def compile(
    block: Any,
    backend: str = "auto",
    policy: str = "auto",
    layout: str = "consumer",
    *,
    batched: bool = True,
    seed: int = 0,
    threads: int | None = None,
    kept_bytes: int | None = None,
    share: str | None = "leaves",
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
        policy: how calls are grouped: ``by_component``, ``by_agenda``, ``by_depth``; or ``auto``,
            ``by_component`` that plans no longer than that saves (`Program.describe` says what it chose).
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
    cores = available_cores() if threads is None else threads
    options = Options(choose_engine(backend), policy, layout, batched, cores, debug, share)
    find_layout(layout)
    find_share(share)
    lowered = lower(as_block(block), find_policy(policy), kept_bytes)
    return Program(lowered, options, seed)


def _refuse_no_count(name: str, value: Any, least: int) -> None:
    if not is_int(value) or value < least:
        found = describe_value(value)
        raise BlockValueError(
            name, f"a whole number of {least} or more", found, "leave it out for the default"
        )


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
        self.params = ParameterStore(name_parameters(lowered.model.parameters))
        for name, parameter in self.params.parameters.items():
            parameter.initialize(seed, name)
        self._runner = Runner(lowered.model, options, seed)
        self.params.updates = self._runner.engine.updates
        self._traces = Traces(lowered, self._runner.plan)

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
        return self._runner.run(self._batch(examples))

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
        """
        loss, gradients = self._runner.value_and_grad(self._batch(examples), self._drawing(step))
        named = self.params.parameters.items()
        return loss, {name: gradients[parameter] for name, parameter in named if parameter in gradients}

    def vjp(
        self,
        examples: Iterable[Any] | Planned,
        cotangents: Iterable[Any] | None = None,
        *,
        losses: bool | None = None,
        inputs: bool = False,
        step: int | None = None,
    ) -> Pullback:
        """Return the gradients that follow from cotangents of the results: a vector-Jacobian product.

        With cotangents that another program computed, a block can be one part of a larger model. With none,
        gradients come from the losses, and those of parameters are what `value_and_grad` returns. What is
        computed is what is
        trained: `Dropout` drops. The cells that compute it are compiled at the first call.

        Args:
            examples: the batch.
            cotangents: for each example one value in the form of its result, arrays where that has tensors of
                floats; None for a part, or for an example, that has none.
            losses: whether gradients come from the losses, too; by default only where no cotangents are
                given.
            inputs: whether gradients of the floats that examples hold are wanted, as of `input_gradients`.
            step: as for `value_and_grad`.

        Raises:
            ExampleError: when an example does not fit the block, or a cotangent does not fit its result.

        >>> import foldbatch as fb
        >>> w = fb.Parameter([], init=3.0, name="w")
        >>> program = fb.compile(fb.Map(fb.Scalar() >> fb.Function(lambda x: w * x * x)))
        >>> found = program.vjp([[1, 2], [4]], [[1, 0.5], None], inputs=True)
        >>> found.gradients
        {'w': array(3., dtype=float32)}
        >>> for name, values in found.inputs.items():
        ...     print(name, values.values)
        model.map Scalar('float32') [6. 6. 0.]
        """
        traces = self._trace_all(examples)
        results = [trace.result for trace in traces]
        seeds = None if cotangents is None else seeds_of(self.model.result, results, cotangents)
        chosen = cotangents is None if losses is None else losses
        return self._derivatives.vjp(traces, self._drawing(step), seeds, losses=chosen, inputs=inputs)

    def _drawing(self, step: int | None) -> int:
        """Return the step to draw random numbers for: a new one, if none is given."""
        if step is None:
            step, self._step = self._step, self._step + 1
        _refuse_no_count("step", step, 0)
        return step

    # -- derivatives

    def jvp(
        self, examples: Iterable[Any] | Planned, tangents: Tangents, *, step: int | None = None
    ) -> tuple[float, float]:
        """Return the float sum of all losses, and its derivative as the parameters move along `tangents`.

        It is exact: no step is taken. The cells that compute it are compiled at the first call.

        Args:
            examples: the batch.
            tangents: by parameter name, an array of the parameter's shape, or a gradient; parameters
                that are not named stay where they are.
            step: as for `value_and_grad`.

        Raises:
            ExampleError: when an example does not fit the block.
            UnknownNameError: when there is no parameter of a name.
            ParameterError: when a tangent has another shape than its parameter, is not finite, or is
                one of a frozen parameter.

        Source: Baydin et al. 2018 (Automatic differentiation in machine learning), section 3.1.

        >>> import foldbatch as fb
        >>> w = fb.Parameter([], init=3.0, name="w")
        >>> program = fb.compile(fb.Scalar() >> fb.Function(lambda x: x * w * w) >> fb.Loss())
        >>> program.jvp([1, 2], {"w": 1.0})
        (27.0, 18.0)
        """
        return self._derivatives.jvp(self._trace_all(examples), tangents, self._drawing(step))

    def hvp(
        self, examples: Iterable[Any] | Planned, tangents: Tangents, *, step: int | None = None
    ) -> dict[str, Array]:
        """Return the Hessian of the summed losses times `tangents`: an array per trainable parameter.

        That is how the gradients change as the parameters move along the tangents. Arguments and
        errors are those of `jvp`. The Hessian is never formed.

        Source: Pearlmutter 1994 (Fast exact multiplication by the Hessian), section 3.

        >>> import foldbatch as fb
        >>> w = fb.Parameter([], init=3.0, name="w")
        >>> program = fb.compile(fb.Scalar() >> fb.Function(lambda x: x * w * w) >> fb.Loss())
        >>> program.hvp([1, 2], {"w": 1.0})
        {'w': array(6., dtype=float32)}
        """
        return self._derivatives.hvp(self._trace_all(examples), tangents, self._drawing(step))

    def input_gradients(
        self, examples: Iterable[Any] | Planned, *, step: int | None = None
    ) -> tuple[float, InputGradients]:
        """Return the float sum of all losses, and its gradients with respect to what examples hold.

        They are found by the place and the block that reads a tensor of floats, such as
        ``model['x'] Vector(3)``; their `values` are ``[m, *shape]``, one per visit, and `examples`
        and `nodes` tell whose they are, as of metrics, but in a recursion children come before parents.
        The cells that compute them are compiled at
        the first call.

        Raises:
            ExampleError: when an example does not fit the block.

        >>> import foldbatch as fb
        >>> program = fb.compile(fb.Map(fb.Scalar() >> fb.Function(lambda x: x * x) >> fb.Loss()))
        >>> loss, gradients = program.input_gradients([[1, 2], [], [3]])
        >>> for name, found in gradients.items():
        ...     print(name, found.values, found.examples)
        model.map Scalar('float32') [2. 4. 6.] [0 0 2]
        """
        traces = self._trace_all(examples)
        step = self._drawing(step)
        derivatives = self._derivatives.vjp(traces, step, None, parameters=False, inputs=True)
        return derivatives.loss, derivatives.inputs

    @cached_property
    def _derivatives(self) -> Derivatives:
        return Derivatives(self._runner, self.params.parameters)

    # -- reports

    def describe(self, examples: Iterable[Any]) -> Report:
        """Return a report on one batch of examples: steps, kernel calls, bytes, seconds.

        A single example that is no list will do. The batch is run whole, on one thread.
        Parameters are not changed.
        """
        batch_of = examples if isinstance(examples, list | tuple | Planned) else [examples]
        start = time.perf_counter()
        traces = self._trace_all(batch_of)
        phases = {"trace": time.perf_counter() - start}
        return replace(self._runner.report(traces, phases), program=self.lowered.tracer.source)

    def kernels(self) -> str:
        """Return the generated source: the tracing program, and what the engine made of every cell."""
        return f"{self.lowered.tracer.source}\n\n{self._runner.engine.source()}"

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
