"""Collected: what a run yields to its caller: results by example, losses and metrics by name."""

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter
from typing import Any

from foldbatch.engines.batch import Batch
from foldbatch.engines.engine import Run
from foldbatch.engines.results import (
    Losses,
    Metrics,
    MetricValues,
    Results,
    collect_metric,
    decode,
    no_values,
)
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array
from foldbatch.scheduler.trace import Trace


def collect(model: Model, batch: Batch, run: Run, asides: Collection[str]) -> Results:
    """Return the results of a batch that has run forward."""
    items = decode(model.result, batch.results, batch.merged.offsets.tolist(), run.fetch)
    metrics = _metrics(model, _by_name(model, batch, run)) if "metrics" in asides else None
    return Results(items, metrics, sum_losses(model, run) if "losses" in asides else None)


def nothing(model: Model, asides: Collection[str]) -> Results:
    """Return the results of a batch of no examples; arguments are those of `collect`."""
    losses = Losses(0.0, dict.fromkeys(_loss_names(model), 0.0))
    return Results(
        [], _metrics(model, {}) if "metrics" in asides else None, losses if "losses" in asides else None
    )


def sum_losses(model: Model, run: Run) -> Losses:
    """Return the losses of a batch that has run forward."""
    by_name = dict.fromkeys(_loss_names(model), 0.0)
    total = 0.0
    for (k, i), loss in run.loss_sums().items():
        total += loss
        by_name[model.losses[k][i]] += loss
    return Losses(total, by_name)


def _loss_names(model: Model) -> list[str]:
    return [name for names in model.losses for name in names]


def _by_name(model: Model, batch: Batch, run: Run) -> dict[str, list[Any]]:
    """Return what cells collected under each name: values, places of visits, examples and labels."""
    merged, schedule = batch.merged, batch.schedule
    collected: dict[str, list[Any]] = {}
    for (k, i), values in sorted(run.metrics.items(), key=itemgetter(0)):
        table = schedule.cells[k]
        labels = _labels(model, k, i, merged.trace)
        ranked = [labels[rank] for rank in table.order] if labels is not None else None
        mark = dict(model.marks[k]).get(i)
        visits: Array = merged.trace.calls[k][:, 0][table.order]
        if mark is not None:
            visits = batch.feeds[k][mark] + merged.offsets[table.examples]
        columns = (values, visits, table.examples, ranked)
        collected.setdefault(model.metrics[k][i], []).append(columns)
    return collected


def _labels(model: Model, cell: int, metric: int, trace: Trace) -> list[Any] | None:
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
