"""Derivatives beyond the gradient, each made when first asked for: along tangents, and of inputs.

They run the traces of the program itself through cells of their own, see `foldbatch.model.dual`
and `foldbatch.model.sources`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from foldbatch.engines.cotangents import seeds_of
from foldbatch.engines.held import Pool
from foldbatch.engines.parts import Seeds
from foldbatch.engines.planned import Planned
from foldbatch.engines.results import Metrics
from foldbatch.engines.runner import Runner
from foldbatch.engines.visits import InputGradients, Visits, gather
from foldbatch.errors import ParameterError, UnknownNameError
from foldbatch.forks import start_in_each_process
from foldbatch.model.dual import LOSS, dual
from foldbatch.model.model import Model
from foldbatch.model.sources import float_reads, with_gradients
from foldbatch.params import Array, Gradient, Parameter, SparseRows
from foldbatch.scheduler.trace import Trace
from foldbatch.store import ParameterStore
from foldbatch.types import describe_value

Tangents = Mapping[str, ArrayLike | SparseRows]


def dense(gradient: Gradient) -> Array:
    """Return a gradient as an array of its parameter's shape."""
    return gradient.dense() if isinstance(gradient, SparseRows) else gradient


class Pullback(NamedTuple):
    """What `Program.vjp` returns.

    Attributes:
        loss: the float sum of all losses.
        gradients: of parameters, by name.
        inputs: of what blocks read, by the block's place in the model; empty where nobody asked.
    """

    loss: float
    gradients: dict[str, Gradient]
    inputs: InputGradients


class Derivatives:
    """The runners that compute derivatives of one program.

    Args:
        runner: the program's own.
        parameters: the program's, by name.
    """

    def __init__(self, runner: Runner, parameters: Mapping[str, Parameter]) -> None:
        self.runner = runner
        self.parameters = parameters
        self.tangents = {
            name: Parameter(p.type, 0.0, f"tangents[{name!r}]", trainable=False)
            for name, p in parameters.items()
            if p.trainable
        }
        start_in_each_process(self, Derivatives._start)
        self._runners: dict[tuple[bool, ...], Runner] = {}
        self._pools: dict[Runner, Pool] = {}

    def _start(self) -> None:
        self._lock = threading.Lock()

    @cached_property
    def _dual(self) -> Runner:
        tangents = {self.parameters[name]: tangent for name, tangent in self.tangents.items()}
        return self._running(dual(self.runner.model, tangents))

    def _running(self, model: Model) -> Runner:
        return Runner(model, self.runner.options, self.runner.seed)

    def jvp(self, traces: list[Trace], tangents: Tangents, step: int) -> tuple[float, float]:
        """Return the summed loss and its derivative along the tangents."""
        with self._lock:
            self._assign(tangents)
            results = self._dual.run(traces, step)
        losses = results.metrics[LOSS].values if LOSS in results.metrics else np.zeros(0)
        return float(losses.sum(dtype=np.float64)), results.loss

    def hvp(self, traces: list[Trace], tangents: Tangents, step: int) -> dict[str, Array]:
        """Return the Hessian of the summed loss times the tangents, by trainable parameter."""
        with self._lock:
            self._assign(tangents)
            _, products = self._dual.value_and_grad(traces, step)
        return {name: dense(products[self.parameters[name]]) for name in self.tangents}

    def vjp(
        self,
        traces: list[Trace],
        step: int,
        seeds: Seeds | None,
        *,
        losses: bool = True,
        parameters: bool = True,
        inputs: bool = False,
    ) -> Pullback:
        """Return the summed loss, the gradients of parameters by name, and those of inputs.

        Args:
            traces: the batch.
            step: the step of training.
            seeds: per example, the numbers of values with cotangents; None for none at all.
            losses: whether gradients come from losses.
            parameters: whether gradients of parameters are wanted.
            inputs: whether gradients of the floats in examples are wanted.
        """
        reads = float_reads(self.runner.model) if inputs else {}

        def gathered(visits: Visits) -> Metrics:
            return Metrics({name: gather(visits, *read) for name, read in reads.items()})

        runner = self.gradients_of(
            losses=losses, results=seeds is not None, parameters=parameters, inputs=inputs
        )
        results, gradients = runner.vjp(traces, step, seeds, gathered)
        named = {name: gradients[p] for name, p in self.parameters.items() if parameters and p in gradients}
        return Pullback(results.loss, named, InputGradients(dict(results.metrics)))

    def gradients_of(
        self,
        *,
        losses: bool = True,
        results: bool = False,
        parameters: bool = True,
        inputs: bool = False,
        training: bool = True,
    ) -> Runner:
        """Return a runner whose cells yield these gradients; arguments are those of `with_gradients`."""
        key = (losses, results, parameters, inputs, training)
        with self._lock:
            if key not in self._runners:
                model = with_gradients(
                    self.runner.model,
                    losses=losses,
                    results=results,
                    parameters=parameters,
                    inputs=inputs,
                    training=training,
                )
                self._runners[key] = self._running(model)
            return self._runners[key]

    def pool_of(self, *, losses: bool, results: bool, inputs: bool, training: bool) -> Pool:
        """Return what runs batches forward and holds them until these gradients are wanted.

        Arguments are those of `with_gradients`; gradients of parameters are always among them.
        """
        if losses and training and not results and not inputs:
            return self.own_pool
        runner = self.gradients_of(losses=losses, results=results, inputs=inputs, training=training)
        with self._lock:
            return self._pools.setdefault(runner, Pool(runner))

    @cached_property
    def own_pool(self) -> Pool:
        """What runs batches forward with the program's own cells: of losses they yield gradients."""
        return Pool(self.runner)

    def _assign(self, tangents: Tangents) -> None:
        if not isinstance(tangents, Mapping):
            found, fix = describe_value(tangents), "for example {'linear.weight': array}"
            raise ParameterError("tangents", "a mapping from names of parameters to arrays", found, fix)
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


def _array(name: str, value: Any) -> Any:
    if isinstance(value, SparseRows):
        return value.dense()
    try:
        return np.asarray(value)
    except ValueError:
        found = describe_value(value)
        fix = "give numbers, in rows of one length"
        raise ParameterError(f"tangents[{name!r}]", "an array", found, fix) from None


class Differentiable:
    """The derivatives of a program: what `foldbatch.Program` offers beyond `value_and_grad`."""

    _runner: Runner

    @property
    def params(self) -> ParameterStore:
        """The parameters."""
        raise NotImplementedError

    def _trace_all(self, examples: Iterable[Any] | Planned) -> list[Trace]:
        raise NotImplementedError

    def _drawing(self, step: int | None) -> int:
        raise NotImplementedError

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
        seeds = None if cotangents is None else seeds_of(self._runner.model.result, results, cotangents)
        chosen = cotangents is None if losses is None else losses
        return self._derivatives.vjp(traces, self._drawing(step), seeds, losses=chosen, inputs=inputs)

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
