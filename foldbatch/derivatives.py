"""Derivatives beyond the gradient, each made when first asked for: along tangents, and of inputs.

They run the traces of the program itself through cells of their own, see `foldbatch.model.dual`
and `foldbatch.model.inputs`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from foldbatch.model.dual import LOSS, dual
from foldbatch.model.inputs import float_reads, with_input_gradients
from foldbatch.engine import Engine, backend_of
from foldbatch.errors import ParameterError, UnknownNameError
from foldbatch.params import Array, Gradient, Parameter, SparseRows
from foldbatch.runtime.results import Metrics
from foldbatch.runtime.visits import InputGradients, Visits, gather
from foldbatch.scheduler.trace import Trace
from foldbatch.types import describe_value

Tangents = Mapping[str, ArrayLike | SparseRows]


def dense(gradient: Gradient) -> Array:
    """Return a gradient as an array of its parameter's shape."""
    return gradient.dense() if isinstance(gradient, SparseRows) else gradient


class Derivatives:
    """The engines that compute derivatives of one program.

    Args:
        engine: the program's own.
        parameters: the program's, by name.
    """

    def __init__(self, engine: Engine, parameters: Mapping[str, Parameter]) -> None:
        self.engine = engine
        self.parameters = parameters
        self.tangents = {
            name: Parameter(p.type, 0.0, f"tangents[{name!r}]", trainable=False)
            for name, p in parameters.items()
            if p.trainable
        }
        self._lock = threading.Lock()

    @cached_property
    def _dual(self) -> Engine:
        options = self.engine.options
        tangents = {self.parameters[name]: tangent for name, tangent in self.tangents.items()}
        lowered = dual(self.engine.lowered, tangents, backend_of(options.backend))
        return Engine(lowered, options, self.engine.seed)

    @cached_property
    def _inputs(self) -> Engine:
        options = self.engine.options
        lowered = with_input_gradients(self.engine.lowered, backend_of(options.backend))
        return Engine(lowered, options, self.engine.seed)

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

    def input_gradients(self, traces: list[Trace], step: int) -> tuple[float, InputGradients]:
        """Return the summed loss and its gradients by the blocks that read floats."""
        reads = float_reads(self.engine.lowered)

        def gathered(visits: Visits) -> Metrics:
            return Metrics({name: gather(visits, *read) for name, read in reads.items()})

        with self._lock:
            engine = self._inputs
        results = engine.input_gradients(traces, step, gathered)
        return results.loss, InputGradients(dict(results.metrics))

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
