"""Derivatives beyond the gradient, each made when first asked for: along tangents, and of inputs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from foldbatch.engines.held import Pool
from foldbatch.engines.parts import Seeds
from foldbatch.engines.results import Metrics
from foldbatch.engines.runner import Runner
from foldbatch.engines.visits import DataGradients, InputGradients, gather
from foldbatch.errors import ParameterError, UnknownNameError
from foldbatch.model.dual import LOSS, dual
from foldbatch.model.model import Model
from foldbatch.model.sources import float_reads, with_gradients
from foldbatch.params.parameters import Array, Gradient, Parameter, SparseRows
from foldbatch.scheduler.trace import Trace
from foldbatch.system.forks import start_in_each_process
from foldbatch.types import describe_value

Tangents = Mapping[str, ArrayLike | SparseRows]


def dense(gradient: Gradient) -> Array:
    """Return a gradient as an array of its parameter's shape."""
    return gradient.dense() if isinstance(gradient, SparseRows) else gradient


class Pullback(NamedTuple):
    """What `Program.vjp` returns."""

    loss: float  # the float sum of all losses
    gradients: dict[str, Gradient]  # of parameters, by name
    inputs: InputGradients  # of what blocks read, by the block's place in the model; empty where nobody asked


class Derivatives:
    """The runners that compute derivatives of one program."""

    def __init__(self, runner: Runner, parameters: Mapping[str, Parameter]) -> None:
        self.runner = runner
        self.parameters = parameters
        self.tangents = {
            name: Parameter(p.type, 0.0, f"tangents[{name!r}]", trainable=False)
            for name, p in parameters.items()
            if p.trainable
        }
        start_in_each_process(self, Derivatives._start)
        self._runners: dict[tuple[object, ...], Runner] = {}
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
        inputs: bool = False,
    ) -> Pullback:
        """Return the summed loss, the gradients of parameters by name, and those of inputs.

        Args:
            traces: the batch.
            step: the step of training.
            seeds: per example, the numbers of values with cotangents; None for none at all.
            losses: whether gradients come from losses.
            inputs: whether gradients of the floats in examples are wanted.
        """
        reads = float_reads(self.runner.model) if inputs else {}

        def gathered(visits: DataGradients) -> Metrics:
            return Metrics({name: gather(visits, *read) for name, read in reads.items()})

        runner = self.gradients_of(losses=losses, results=seeds is not None, inputs=inputs)
        results, gradients = runner.vjp(traces, step, seeds, gathered)
        named = {name: gradients[p] for name, p in self.parameters.items() if p in gradients}
        return Pullback(results.loss, named, InputGradients(dict(results.metrics)))

    def gradients_of(self, *, training: bool = True, **wanted: bool) -> Runner:
        """Return a runner whose cells yield these gradients; arguments are those of `with_gradients`."""
        key = (training, *sorted(wanted.items()))
        with self._lock:
            if key not in self._runners:
                model = with_gradients(self.runner.model, training=training, **wanted)
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
