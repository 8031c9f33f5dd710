"""Fitting: a configuration becomes a model that is trained, tested and saved in a folder.

The folder of a run holds::

    configuration.toml    all options, from which the run can be started again
    model.safetensors     the parameters of the best epoch, and what it takes to predict
    figures.json          of all epochs, and of the best one on dev and test
    epochs.csv            figures of each epoch
    plots/, tensorboard/  where these are asked for
    checkpoints/          of which the last one is where an interrupted run goes on
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from foldbatch.communicators import Alone, Communicator, cores
from foldbatch.compiling import compile
from foldbatch.errors import TrainingError
from foldbatch.locks import locked
from foldbatch.output import remove_partial, write_whole
from foldbatch.program import Program
from foldbatch.recipes.building import build_model, build_optimizer
from foldbatch.recipes.configuration import plain, to_toml
from foldbatch.recipes.data import Dataset
from foldbatch.recipes.resuming import Run, check_run
from foldbatch.recipes.settings import Configuration
from foldbatch.recipes.steering import CHECKPOINTS, LOG, build_callbacks, has_best, metrics_of
from foldbatch.train import Callback, Checkpoints, DataParallel, LambdaCallback, Trainer

CONFIGURATION, MODEL, FIGURES = "configuration.toml", "model.safetensors", "figures.json"
LAST = "last.safetensors"


@dataclass(frozen=True, slots=True)
class Fitted:
    """A trained model.

    Attributes:
        program: with the parameters of the best epoch.
        notes: what is saved with it: ``task``, ``classes`` and ``configuration``.
        figures: of all ``epochs``, and on ``dev`` and ``test``, as far as there are such parts.
        path: of the saved model.
    """

    program: Program
    notes: dict[str, Any]
    figures: dict[str, Any]
    path: Path


def fit(
    configuration: Configuration,
    dataset: Dataset,
    folder: Path,
    *,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    communicator: Communicator | None = None,
) -> Fitted:
    """Train, test and save a model; several processes do it together, and rank 0 writes the files.

    Args:
        configuration: all options.
        dataset: that `foldbatch.recipes.data.read_dataset` read.
        folder: of the run; it is made.
        resume: whether to go on from the newest checkpoint of the folder.
        callbacks: more of them, such as what shows progress.
        communicator: of several processes, each of which calls this; by default this one trains alone.

    Raises:
        FoldbatchError: when examples do not fit the model, or a setting is out of range; when the run that is
            resumed began with other options or data; when another one writes to the folder.
        OSError: when the folder cannot be written.
    """
    options = configuration.train
    metrics = metrics_of(dataset.kind, options.metrics)
    communicator = communicator or Alone()
    threads = None if communicator.size == 1 else cores(communicator)
    run = Run(configuration, [*dataset.classes, *dataset.aside])
    last = folder / CHECKPOINTS / LAST
    if resume and communicator.rank == 0 and os.path.lexists(last):
        check_run(run, last)
    program = compile(
        build_model(configuration, dataset), options.backend, seed=options.seed, threads=threads
    )
    parallel = DataParallel(program, communicator)
    traced = replace(dataset, train=parallel.prepare(dataset.train), dev=parallel.prepare(dataset.dev))
    steps = math.ceil(len(dataset.train) / options.batch)
    keep_options = LambdaCallback(  # when a checkpoint of other options has been refused
        on_fit_start=lambda _: write_whole(folder / CONFIGURATION, to_toml(configuration).encode())
    )
    keep_options.first_only = True
    steering = build_callbacks(configuration, traced, steps, folder)
    trainer = Trainer(
        parallel,
        build_optimizer(configuration.optimizer),
        batch=options.batch,
        metrics=metrics,
        callbacks=[keep_options, run, *steering, *callbacks],
        seed=options.seed,
    )
    with _kept_apart(folder, resume=resume) if parallel.is_first else nullcontext():
        history = trainer.fit(traced.train, traced.dev or None, epochs=options.epochs, resume=resume)
        if has_best(configuration, dataset.dev):
            _restore_best(trainer)
        figures: dict[str, Any] = {"epochs": history}
        figures |= {
            part: trainer.evaluate(examples)
            for part, examples in (("dev", traced.dev), ("test", dataset.test))
            if examples
        }
        notes: dict[str, Any] = {"task": dataset.kind, "classes": list(dataset.classes)}
        notes |= {"configuration": plain(configuration)}
        if parallel.is_first:
            program.save(folder / MODEL, notes=notes)
            write_whole(folder / FIGURES, as_json(figures))
    return Fitted(program, notes, figures, folder / MODEL)


@contextmanager
def _kept_apart(folder: Path, *, resume: bool) -> Iterator[None]:
    """Make the folder of a run, keep it from others, and remove what a process that was killed left half.

    Raises:
        TrainingError: when another run writes to it, or has done so since it was looked at.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        if not resume and (folder / MODEL).exists():
            fix = "name another folder"
            raise TrainingError(str(folder), "a folder without a run", "one that a run has written to", fix)
        remove_partial(folder, (CONFIGURATION, MODEL, FIGURES, LOG))
        yield


def _restore_best(trainer: Trainer) -> None:
    """Give the parameters the values of the best epoch; those of the last one stay where none is the best."""
    checkpoints = next(one for one in trainer.callbacks if isinstance(one, Checkpoints))
    if checkpoints.best_epoch is None:
        figure = f"no finite {checkpoints.figure}"
        print(f"warning: {figure} in any epoch; the model of the last epoch is kept", file=sys.stderr)
    else:
        trainer.restore_best()


def as_json(figures: Any) -> bytes:
    r"""Return figures as JSON, in lines; a figure that is not finite is null.

    >>> as_json({"loss": math.inf})
    b'{\n "loss": null\n}'
    """
    return msgspec.json.format(msgspec.json.encode(figures), indent=1)
