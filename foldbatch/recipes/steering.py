"""Steering: metrics and callbacks of a configuration."""

from __future__ import annotations

from typing import Any, Literal

from foldbatch.recipes.data import Kind
from foldbatch.recipes.settings import ScheduleOptions, Train
from foldbatch.train import Accuracy, Callback, MeanSquaredError, schedules
from foldbatch.train.callbacks import EarlyStopping, ReduceOnPlateau, Schedule

Mode = Literal["min", "max"]


def metrics_of(kind: Kind) -> list[Any]:
    """Return the metrics of a task: of whole examples, and of nodes where these are told."""
    if kind == "number":
        return [MeanSquaredError("root", "mse")]
    whole = [Accuracy("root", "accuracy")]
    return [*whole, Accuracy("node", "node_accuracy")] if kind == "nodes" else whole


def deciding_figure(kind: Kind) -> tuple[str, Mode]:
    """Return the figure by which the best epoch is chosen, and whether less or more of it is better.

    >>> deciding_figure("nodes")
    ('dev_accuracy', 'max')
    """
    return ("dev_mse", "min") if kind == "number" else ("dev_accuracy", "max")


def build_callbacks(
    options: ScheduleOptions, train: Train, kind: Kind, steps: int, *, has_dev: bool
) -> list[Callback]:
    """Return the callbacks of a run: schedule, and the best epoch's parameters in the end.

    Args:
        options: of the schedule.
        train: how long to train.
        kind: the task's.
        steps: updates of an epoch.
        has_dev: whether there is a dev part to choose the best epoch by.
    """
    figure, mode = deciding_figure(kind)
    found: list[Callback] = []
    if options.name == "plateau" and has_dev:
        found.append(ReduceOnPlateau(figure, mode, factor=options.factor, patience=options.every))
    elif options.name != "constant" or options.warm_up:
        found.append(Schedule(_schedule(options, steps, train.epochs * steps)))
    if has_dev:
        patience = train.patience or train.epochs
        found.append(EarlyStopping(figure, mode, patience=patience, restore=True))
    return found


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
