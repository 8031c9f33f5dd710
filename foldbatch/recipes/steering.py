"""Steering: metrics and callbacks of a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from foldbatch.recipes.data import Kind
from foldbatch.recipes.settings import Configuration, ScheduleOptions
from foldbatch.train import (
    Accuracy,
    AverageWeights,
    Callback,
    Checkpoints,
    ClipGradients,
    CSVLog,
    EarlyStopping,
    MeanSquaredError,
    NaNGuard,
    Progress,
    ReduceOnPlateau,
    Schedule,
    schedules,
)

Mode = Literal["min", "max"]
LOG, CHECKPOINTS = "epochs.csv", "checkpoints"


def metrics_of(kind: Kind) -> list[Any]:
    """Return the metrics of a task: of whole examples, and of nodes where these are told."""
    if kind == "number":
        return [MeanSquaredError("root", "mse")]
    whole = [Accuracy("root", "accuracy")]
    return [*whole, Accuracy("node", "node_accuracy")] if kind == "nodes" else whole


def deciding_figure(kind: Kind, *, averaged: bool = False) -> tuple[str, Mode]:
    """Return the figure by which the best epoch is chosen, and whether less or more of it is better.

    >>> deciding_figure("nodes", averaged=True)
    ('dev_averaged_accuracy', 'max')
    """
    part = "dev_averaged" if averaged else "dev"
    return (f"{part}_mse", "min") if kind == "number" else (f"{part}_accuracy", "max")


def build_callbacks(
    configuration: Configuration, kind: Kind, steps: int, dev: Sequence[Any], folder: Path
) -> list[Callback]:
    """Return the callbacks of a run, in the order in which they have to be called.

    Args:
        configuration: all options.
        kind: the task's.
        steps: updates of an epoch.
        dev: the examples to choose the best epoch by; may be empty.
        folder: where checkpoints and the log of epochs are written.
    """
    train, schedule, average = configuration.train, configuration.schedule, configuration.average
    figure, mode = deciding_figure(kind, averaged=average.name == "moving" and bool(dev))
    made: list[Callback] = [NaNGuard()]
    if configuration.optimizer.clip:
        made.append(ClipGradients(configuration.optimizer.clip))
    if average.name == "moving":
        made.append(AverageWeights(average.decay, dev=dev or None, keep=not dev))
    elif average.name == "epochs":
        made.append(AverageWeights(start=average.start, dev=dev or None))
    if schedule.name == "plateau" and dev:
        made.append(ReduceOnPlateau(figure, mode, factor=schedule.factor, patience=schedule.every))
    elif schedule.name != "constant" or schedule.warm_up:
        made.append(Schedule(_schedule(schedule, steps, train.epochs * steps)))
    if train.patience and dev:
        made.append(EarlyStopping(figure, mode, patience=train.patience))
    made += [CSVLog(folder / LOG), Progress()]
    every = train.checkpoint or None
    best = figure if has_best(configuration, dev) else None
    checkpoints = Checkpoints(folder / CHECKPOINTS, every=every, best=best, mode=mode if best else None)
    return [*made, checkpoints]


def has_best(configuration: Configuration, dev: Sequence[Any]) -> bool:
    """Return whether the best epoch is chosen: by the dev part, but not of means that have them all."""
    return bool(dev) and configuration.average.name != "epochs"


def _schedule(options: ScheduleOptions, epoch: int, total: int) -> schedules.Factor:
    """Return the factor of the learning rate by steps, of which an epoch has `epoch` and the run `total`."""
    rise = round(options.warm_up * epoch)
    match options.name:
        case "step":
            found = schedules.stepwise(options.every * epoch, options.factor)
        case "exponential":
            found = schedules.exponential(options.factor ** (1 / epoch))
        case "cosine":
            found = schedules.cosine(total, options.end)
        case "one-cycle":
            found = schedules.one_cycle(total)
        case _:
            found = schedules.constant()
    return schedules.product(schedules.warm_up(rise), found) if rise else found
