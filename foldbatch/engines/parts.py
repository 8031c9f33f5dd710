"""Parts of a batch that have run: forward and backward, what cells collected, and whose error it is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

from foldbatch.engines.batch import ScheduledBatch, SubBatch
from foldbatch.engines.engine import Run
from foldbatch.engines.launch import OutOfRangeError
from foldbatch.engines.results import Losses, Metrics, MetricValues, Results, collect_metric, no_values
from foldbatch.engines.visits import DataGradients
from foldbatch.errors import ExamplePlace
from foldbatch.model.decoding import decode, numbers_in
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array, Gradient, Parameter
from foldbatch.scheduler.trace import Trace

Seeds: TypeAlias = (
    "Sequence[Sequence[tuple[int, Array]]]"  # per example, numbers of its values with cotangents
)


@dataclass(frozen=True, slots=True)
class Derived:
    """The results of the backward pass of a part."""

    losses: Losses  # the part's losses
    gradients: dict[Parameter, Gradient]  # the gradients, by parameter
    visits: DataGradients  # the gradients of data, where the model's cells yield them
    size: int  # how many examples the part has
    called: Sequence[int]  # the cells that it calls
    results: Results | None = None  # its results and metrics, where they are asked for


@dataclass(frozen=True, slots=True)
class ForwardPart:
    """A part that has run forward, for training; its backward pass may follow."""

    part: SubBatch
    batch: ScheduledBatch  # it scheduled
    run: Run  # what ran it

    def batch_seeds(self, seeds: Seeds) -> list[list[tuple[int, Array]]]:
        """Return, for each example, its seeds with the numbers that its values have in the batch."""
        offsets = self.batch.merged.offsets.tolist()
        return [
            [(number + offset, g) for number, g in pairs]
            for offset, pairs in zip(offsets, seeds, strict=True)
        ]


def collect(model: Model, batch: ScheduledBatch, run: Run, asides: Collection[str]) -> Results:
    """Return the results of a batch that has run, with the side outputs that were asked for."""
    items = decode(model.result, batch.results, batch.merged.offsets.tolist(), run.fetch)
    metrics = _metrics(model, _by_name(model, batch, run)) if "metrics" in asides else None
    return Results(items, metrics, sum_losses(model, run) if "losses" in asides else None)


def collected(model: Model, begun: ForwardPart, asides: Collection[str]) -> Results:
    """Return the results of a part that has begun, see `collect`; errors name its examples."""
    with Naming(model, begun.batch, begun.part.first):
        return collect(model, begun.batch, begun.run, asides)


def result_numbers(model: Model, batch: ScheduledBatch) -> list[int]:
    """Return the numbers of all values of results in a batch, in the order in which they are fetched."""
    return numbers_in(model.result, batch.results, batch.merged.offsets.tolist())


def empty_results(model: Model, asides: Collection[str]) -> Results:
    """Return the results of a batch of no examples; arguments are those of `collect`."""
    losses = Losses(0.0, dict.fromkeys(_loss_names(model), 0.0))
    return Results(
        [], _metrics(model, {}) if "metrics" in asides else None, losses if "losses" in asides else None
    )


def sum_losses(model: Model, run: Run) -> Losses:
    """Return the losses of a run, summed over the batch: in all, and by name."""
    by_name = dict.fromkeys(_loss_names(model), 0.0)
    total = 0.0
    for (k, i), loss in run.loss_sums().items():
        total += loss
        by_name[model.losses[k][i]] += loss
    return Losses(total, by_name)


def _loss_names(model: Model) -> list[str]:
    return [name for names in model.losses for name in names]


def _by_name(model: Model, batch: ScheduledBatch, run: Run) -> dict[str, list[object]]:
    """Return the metrics of a batch by name; of each cell that collects one, four columns.

    They are the values; the numbers by which values are put in the order of visits; the examples; and the
    labels, or None.
    """
    merged, schedule = batch.merged, batch.schedule
    collected: dict[str, list[Any]] = {}
    for (k, i), values in sorted(run.metrics.items(), key=itemgetter(0)):
        table = schedule.cells[k]
        labels = labels_of(model, k, i, merged.trace)
        ranked = [labels[rank] for rank in table.order] if labels is not None else None
        mark = dict(model.marks[k]).get(i)
        visits: Array = merged.trace.calls[k][:, 0][table.order]
        if mark is not None:
            visits = batch.feeds[k][mark] + merged.offsets[table.examples]
        columns = (values, visits, table.examples, ranked)
        collected.setdefault(model.metrics[k][i], []).append(columns)
    return collected


def labels_of(model: Model, cell: int, metric: int, trace: Trace) -> list[object] | None:
    """Return the labels of a cell's metric, one a call; None where it has none."""
    labelled = model.labels[cell]
    return trace.labels[cell][labelled.index(metric)] if metric in labelled else None


def _metrics(model: Model, collected: dict[str, list[Any]]) -> Metrics:
    """Join the values that cells collected; a metric that the batch never visits has none."""
    metrics: dict[str, MetricValues] = {}
    for cell, names, labels in zip(model.cells, model.metrics, model.labels, strict=True):
        for i, name in enumerate(names):
            if name in collected:
                metrics.setdefault(name, collect_metric(collected[name]))
            else:
                metrics.setdefault(name, no_values(cell.graph.metrics[i].type, labelled=i in labels))
    return Metrics(metrics)


@dataclass(frozen=True, slots=True)
class Naming:
    """A context that changes errors of ids out of range into errors that name examples; calling it yields it.

    Raises:
        ExampleError: in the place of an `OutOfRangeError`.
    """

    model: Model
    batch: ScheduledBatch  # what runs
    first: int  # the example that it begins with

    def __call__(self) -> Naming:
        return self

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Change an error, if there is one."""
        if isinstance(error, OutOfRangeError):
            example = self.first + int(self.batch.schedule.cells[error.cell].examples[error.rank])
            where = ExamplePlace(self.model.cells[error.cell].name, example)
            raise error.example_error(where, self.batch.schedule.cells[error.cell].segments) from None
