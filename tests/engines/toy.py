"""A toy engine: float64 NumPy, one call after the other in the order of the schedule; it counts the ops that it runs.

It shows what a new engine must have, and no more: `BACKEND`, and what `foldbatch.engines.engine` says of an Engine and a Run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from foldbatch.engines.batch import ScheduledBatch, arenas_of
from foldbatch.engines.engine import Backend, Cotangents
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array, Gradient, Parameter
from foldbatch.scheduler.arithmetic import NUMPY
from foldbatch.scheduler.schedule import RowSpan
from foldbatch.static.cell import cotangents as derivative
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph
from foldbatch.static.routines import Target


class ToyEngine:
    """Runs a model call by call."""

    name, one_by_one, arithmetic, updates, target = "toy", False, NUMPY, None, Target()
    splits = 1

    def __init__(self, model: Model) -> None:
        self.model = model
        self.operations = 0

    def sum_copies(self, dtype: str) -> None:
        """Return nothing: NumPy sums rows of equal id."""

    def memory(self) -> None:
        """Return nothing: values live in dicts."""

    def nbytes(self, ready: tuple[ScheduledBatch, bool]) -> int:
        return 0

    def launched(self, ready: tuple[ScheduledBatch, bool]) -> tuple[()]:
        return ()

    def source(self, cells: Collection[int]) -> str:
        return ""

    def ready(self, batch: ScheduledBatch, *, training: bool) -> tuple[ScheduledBatch, bool]:
        return batch, training

    def forward(
        self, ready: tuple[ScheduledBatch, bool], feeds: Sequence[Sequence[Array]], memory: None
    ) -> ToyRun:
        return ToyRun(self, *ready, feeds)


class ToyRun:
    """A batch; arenas are dicts from rows to arrays."""

    def __init__(
        self, engine: ToyEngine, batch: ScheduledBatch, training: bool, feeds: Sequence[Sequence[Array]]
    ) -> None:
        self.engine, self.model, self.batch, self.feeds = engine, engine.model, batch, feeds
        self.values: list[dict[int, Any]] = [{} for _ in self.model.arenas]
        self.calls: list[tuple[int, int, list[Any]]] = []
        self.losses, self.metrics, self.inputs = ({} for _ in range(3))
        self.launches = 0
        for step in batch.schedule.steps:
            if "step" in step.stages:
                for rank in range(step.start, step.stop):
                    self._call(step.cell, rank, training=training)

    def _call(self, k: int, rank: int, *, training: bool) -> None:
        """Evaluate one call and put its results where the schedule says."""
        cell, table = self.model.cells[k], self.batch.schedule.cells[k]
        graph = cell.phase(training=training).graph
        read = [self._read(span, k, rank) for span in table.operands]
        given = [*read, *(column[rank] for column in self.feeds[k])]
        self.calls.append((k, rank, given))
        whole = Graph(graph.inputs, graph.results)
        self.engine.operations += len(whole.nodes)
        self.launches += 1
        results = iter(evaluate(whole, given))
        for j, arena in enumerate(self.model.signatures[k].outputs):
            result = next(results)
            for row in table.written(j, rank, rank + 1):
                self.values[arena][row] = result
        for kept, nodes in ((self.losses, graph.losses), (self.metrics, graph.metrics)):
            for i, node in enumerate(nodes):
                kept.setdefault((k, i), np.zeros((len(table.order), *node.shape)))[rank] = next(results)

    def _rows(self, span: RowSpan, k: int, rank: int) -> list[int]:
        start, stop = span.extent(self.batch.schedule.cells[k], rank, rank + 1)
        return list(range(start, stop)) if span.rows is None else span.rows[start:stop].tolist()

    def _read(self, span: RowSpan, k: int, rank: int) -> Any:
        values = [self.values[span.arena][row] for row in self._rows(span, k, rank)]
        if span.sequence is not None:
            return values
        return np.stack(values) if span.width > 1 else values[0]

    def loss_sums(self) -> dict[tuple[int, int], float]:
        return {key: float(values.sum()) for key, values in self.losses.items()}

    def fetch(self, numbers: Sequence[int]) -> list[Array]:
        arenas, rows = arenas_of(self.batch, self.model.signatures), self.batch.schedule.row_of
        return [self.values[arenas[number]][rows[number]] for number in numbers]

    def backward(self, cotangents: Cotangents = ()) -> dict[Parameter, Gradient]:
        """Return the gradients of parameters, calls in reverse."""
        schedule = self.batch.schedule
        total: list[dict[int, Any]] = [defaultdict(float) for _ in self.model.arenas]
        arenas = arenas_of(self.batch, self.model.signatures)
        for number, g in cotangents:
            total[arenas[number]][schedule.row_of[number]] += np.asarray(g, np.float64)
        gradients: dict[Parameter, Gradient] = {}
        for k, rank, given in reversed(self.calls):
            cell, table = self.model.cells[k], schedule.cells[k]
            seeds, results = derivative(cell.graph, cell.ends)
            outputs = self.model.signatures[k].outputs
            gs = [
                np.zeros(node.shape) + sum(total[outputs[j]][row] for row in table.written(j, rank, rank + 1))
                for j, node in seeds.items()
            ]
            graph = Graph((*cell.graph.inputs, *seeds.values()), tuple(node for _, node in results))
            for ((kind, key), _), g in zip(results, evaluate(graph, [*given, *gs]), strict=True):
                if kind == "gradient":
                    gradients[key] = np.asarray(gradients.get(key, 0.0) + g)
                elif kind == "feed":
                    self.inputs.setdefault((k, key), np.zeros((len(table.order), *g.shape)))[rank] = g
                else:
                    span = table.operands[key]
                    parts = g if span.sequence is not None or span.width > 1 else [g]
                    for row, part in zip(self._rows(span, k, rank), parts, strict=True):
                        total[span.arena][row] += part
        return gradients


BACKEND = Backend(lambda model, _: ToyEngine(model))
