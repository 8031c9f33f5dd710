"""The oracle: examples one at a time, calls one at a time, in float64, by the interpreter.

The interpreter is `foldbatch.model.evaluation`. Every engine must agree with it. It also shows what a new
engine must have, and no more: `BACKEND`, and what `foldbatch.engines.engine` says of an Engine and a Run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np

from foldbatch.engines.batch import ScheduledBatch
from foldbatch.engines.engine import Backend, Cotangents, EngineOf
from foldbatch.engines.launch import OutOfRangeError
from foldbatch.engines.threads import single_threaded_blas
from foldbatch.model.evaluation import CallError, Evaluation
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array, Gradient, Parameter
from foldbatch.scheduler.schedule import Index
from foldbatch.static.routines import Target


class ReferenceEngine(EngineOf[None, tuple[ScheduledBatch, bool]]):
    """The oracle as an engine: each example is a batch of its own."""

    name = "reference"
    target = Target()
    one_by_one = True

    def __init__(self, model: Model) -> None:
        self.model = model

    def memory(self) -> None:
        """Return None: the interpreter has memory of its own."""

    def ready(self, batch: ScheduledBatch, *, training: bool) -> tuple[ScheduledBatch, bool]:
        """Return the batch, and whether it is trained on."""
        return batch, training

    def forward(
        self, ready: tuple[ScheduledBatch, bool], feeds: Sequence[Sequence[Array]], memory: None
    ) -> ReferenceRun:
        """Evaluate every call, in the order of the traces. Shapes: feeds, each ``[n, *shape]``, by rank."""
        batch, training = ready
        tables, of_trace = batch.schedule.cells, batch.merged.trace
        ordered = (
            tuple(  # from ranks back to the order of calls; those of shared and of pruned calls are as traced
                tuple(column[np.argsort(table.order)] for column in columns)
                if table.copies is None and len(table.order) == count
                else traced
                for columns, table, traced, count in zip(
                    feeds, tables, of_trace.feeds, of_trace.counts, strict=True
                )
            )
        )
        trace = replace(batch.merged.trace, feeds=ordered)
        reference = Evaluation(self.model, trace, training=training)
        with single_threaded_blas(), np.errstate(all="ignore"):
            try:
                reference.forward()
            except CallError as error:  # all calls are of one example: the first one's rank names it as well
                failure = OutOfRangeError(0, error.id, error.size, cell=error.cell)
                failure.exact = False
                raise failure from None
        return ReferenceRun(reference, tuple(table.order for table in tables))


@dataclass(slots=True)
class ReferenceRun:
    """A batch that the oracle evaluates; see `foldbatch.engines.engine.Run`."""

    reference: Evaluation
    orders: tuple[Index, ...]
    launches: int = 0
    within: Callable[[], AbstractContextManager[object]] = nullcontext

    def loss_sums(self) -> dict[tuple[int, int], float]:
        losses = self._ranked(self.reference.losses)
        return {key: float(values.sum(dtype=np.float64)) for key, values in losses.items()}

    @property
    def metrics(self) -> dict[tuple[int, int], Array]:
        return self._ranked(self.reference.metrics)

    @property
    def inputs(self) -> dict[tuple[int, int], Array]:
        """By cell and feed, ``[n, *shape]``, by rank."""
        calls = {key: [by_call[i] for i in sorted(by_call)] for key, by_call in self.reference.inputs.items()}
        return self._ranked(calls)

    def fetch(self, numbers: Sequence[int]) -> list[Array]:
        return [self.reference.values[number] for number in numbers]

    def take(self, arena: int, numbers: Index) -> Array:
        return np.stack([self.reference.values[number] for number in numbers.tolist()])

    def backward(self, cotangents: Cotangents = ()) -> dict[Parameter, Gradient]:
        with single_threaded_blas():
            return dict(self.reference.backward(cotangents))

    def _ranked(self, by_call: Mapping[tuple[int, int], Sequence[Array]]) -> dict[tuple[int, int], Array]:
        return {(k, i): np.array(values)[self.orders[k]] for (k, i), values in by_call.items()}


BACKEND = Backend(lambda model, _: ReferenceEngine(model))
