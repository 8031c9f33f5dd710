"""Steering: metrics and callbacks of a configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from foldbatch.errors import UnknownNameError, with_nearest
from foldbatch.recipes.data import Dataset, Kind
from foldbatch.recipes.settings import Configuration, ScheduleOptions
from foldbatch.train import (
    F1,
    Accuracy,
    AverageWeights,
    Callback,
    Checkpoints,
    ClipGradients,
    Confusion,
    CSVLog,
    EarlyStopping,
    MeanAbsoluteError,
    MeanSquaredError,
    Metric,
    NaNGuard,
    Perplexity,
    Plots,
    Progress,
    ReduceOnPlateau,
    Schedule,
    TensorBoardLog,
    TopK,
    schedules,
)
from foldbatch.train.callbacks.figures import Mode

LOG, CHECKPOINTS, PLOTS, EVENTS = "epochs.csv", "checkpoints", "plots", "tensorboard"
AUTO, LAST = "auto", "last"  # of train.best
LOWER = ("loss", "perplexity", "mse", "mae")  # figures of which less is better
METRICS: dict[str, Callable[[str, str], Metric]] = {
    "accuracy": Accuracy,
    "f1": F1,
    "confusion": Confusion,
    "top3": lambda of, name: TopK(of, 3, name),
    "perplexity": Perplexity,
}
NUMBER_METRICS: dict[str, Callable[[str, str], Metric]] = {"mse": MeanSquaredError, "mae": MeanAbsoluteError}


def metrics_of(kind: Kind, names: Sequence[str] = ()) -> list[Metric]:
    """Return the metrics of a task: of whole examples, and the accuracy of nodes where these are told.

    Args:
        kind: the task's.
        names: of figures besides ``accuracy``, or ``mse`` of numbers.

    Raises:
        UnknownNameError: when a figure is of classes and the task of numbers, or the other way round.

    >>> [metric.name for metric in metrics_of("nodes", ["f1"])]
    ['accuracy', 'f1', 'node_accuracy']
    """
    makers = NUMBER_METRICS if kind == "number" else METRICS
    metrics = []
    for name in dict.fromkeys([next(iter(makers)), *names]):
        if name not in makers:
            expected = f"figures of the task {kind}: {', '.join(makers)}"
            raise UnknownNameError("train.metrics", expected, repr(name), "leave it out")
        metrics.append(makers[name]("root", name))
    return [*metrics, Accuracy("node", "node_accuracy")] if kind == "nodes" else metrics


def deciding_figure(configuration: Configuration, kind: Kind, dev: Sequence[Any]) -> tuple[str, Mode]:
    """Return the figure by which the best epoch is chosen, and whether less or more of it is better.

    Raises:
        UnknownNameError: when `train.best` is no figure of the run.
    """
    train, moving = configuration.train, configuration.average.name == "moving"
    metrics = [metric.name for metric in metrics_of(kind, train.metrics)]
    figures = ["loss", *(name for name in metrics if name != "confusion")]
    name = metrics[0] if train.best in (AUTO, LAST) else train.best
    if name not in figures:
        expected = f"{AUTO}, {LAST} or a figure of {', '.join(figures)}"
        fix = "figures are added by train.metrics"
        raise UnknownNameError("train.best", expected, with_nearest(name, figures), fix)
    part = "dev_averaged" if moving and dev else "dev"
    return f"{part}_{name}", "min" if name in LOWER else "max"


def build_callbacks(
    configuration: Configuration, dataset: Dataset, steps: int, folder: Path
) -> list[Callback]:
    """Return the callbacks of a run, in the order in which they have to be called.

    Args:
        configuration: all options.
        dataset: whose dev part chooses the best epoch; it may be empty.
        steps: updates of an epoch.
        folder: where checkpoints, the log of epochs, plots and events are written.

    Raises:
        UnknownNameError: when the figure that chooses an epoch is none of the run.
        BackendError: when a library for plots or events is not installed.
    """
    train, schedule, average = configuration.train, configuration.schedule, configuration.average
    dev, best = dataset.dev, has_best(configuration, dataset.dev)
    figure, mode = deciding_figure(configuration, dataset.kind, dev)
    made: list[Callback] = [NaNGuard()]
    if configuration.optimizer.clip:
        made.append(ClipGradients(configuration.optimizer.clip))
    if average.name == "moving":
        made.append(AverageWeights(average.decay, dev=dev or None, keep=not best))
    elif average.name == "epochs":
        made.append(AverageWeights(start=average.start, dev=dev or None))
    if schedule.name == "plateau" and dev:
        made.append(ReduceOnPlateau(figure, mode, factor=schedule.factor, patience=schedule.every))
    elif schedule.name != "constant" or schedule.warm_up:
        made.append(Schedule(_schedule(schedule, steps, train.epochs * steps)))
    if train.patience and dev:
        made.append(EarlyStopping(figure, mode, patience=train.patience))
    made += [CSVLog(folder / LOG), Progress()]
    if train.plots:
        made.append(Plots(folder / PLOTS, dataset.classes or None))
    if train.tensorboard:
        made.append(TensorBoardLog(folder / EVENTS))
    every = train.checkpoint or None
    chosen = (figure, mode) if best else (None, None)
    return [*made, Checkpoints(folder / CHECKPOINTS, every=every, best=chosen[0], mode=chosen[1])]


def has_best(configuration: Configuration, dev: Sequence[Any]) -> bool:
    """Return whether the best epoch is chosen: by the dev part, but not of means that have them all."""
    return bool(dev) and configuration.average.name != "epochs" and configuration.train.best != LAST


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
