"""Checkpoints: files from which a killed training goes on, and the parameters of the best epoch."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldbatch import files
from foldbatch.blocks.values import is_int
from foldbatch.communicators import from_first
from foldbatch.errors import TrainingError
from foldbatch.locks import locked
from foldbatch.output import remove_partial
from foldbatch.saving import KIND
from foldbatch.train import checkpoint
from foldbatch.train.callbacks.averaging import AverageWeights, exchanged
from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.callbacks.figures import Mode, check_mode, figure_of, is_better
from foldbatch.train.checks import is_above
from foldbatch.train.resuming import assign, state_of
from foldbatch.types import describe_value

if TYPE_CHECKING:
    from foldbatch.params import Array
    from foldbatch.train.trainer import Trainer

AVERAGED = "dev_averaged_"  # begins the names of figures of averaged parameters
DIGEST = "model"  # the note that says which model a file has
ENDING = ".safetensors"
MODES: dict[Mode, tuple[str, ...]] = {  # by what is part of a figure's name
    "min": ("loss", "error", "mse", "mae", "perplexity"),
    "max": ("accuracy", "f1", "top_"),
}


class Checkpoints(Callback):
    """Keeps the state of a training in a folder, so that ``fit(..., resume=True)`` goes on from it.

    ``last.safetensors`` is written at the end of each epoch, and within epochs as often as is asked for; also
    when Ctrl-C or SIGTERM ends the `fit`. ``best.safetensors`` is the program after the best
    epoch, for `Trainer.restore_best` and `foldbatch.load`. A file is complete under its name, or the former
    one stays. The trainer calls this callback last. Of several processes rank 0 writes and reads files.

    Args:
        folder: is made if there is none.
        every: after how many steps a checkpoint is written; so at most as many steps are lost.
        seconds: after how many seconds one is written, when the step under way is done.
        best: the figure that says which epoch is the best, such as ``"dev_accuracy"``. If it begins with
            ``dev_averaged_``, the averages of `AverageWeights` are kept.
        mode: ``"min"`` where lower is better, ``"max"`` where higher is; by default what the figure's name
            says.
        keep: how many checkpoints of past epochs stay besides, as ``epoch-0012.safetensors``.

    Attributes:
        last: the path of the last checkpoint.
        best: the path of the program after the best epoch.
        best_figure: the best figure, or None.
        best_epoch: the number of its epoch, counted from 1, or None.

    Raises:
        TrainingError: when a setting is out of range, or the name of the figure does not say the mode; in
            `fit`, when the folder is a file, or another training writes to it.
        UnknownNameError: in `fit`, at the end of an epoch, when there is no such figure.
        OSError: in `fit`, when a file cannot be written.

    >>> Checkpoints("runs/sst", every=100, best="dev_accuracy").last.name
    'last.safetensors'
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        every: int | None = None,
        seconds: float | None = None,
        best: str | None = None,
        mode: Mode | None = None,
        keep: int = 0,
    ) -> None:
        for name, value, least in (("every", every, 1), ("seconds", seconds, 0), ("keep", keep, 0)):
            whole = is_int(value) or name == "seconds"
            if value is not None and not (whole and is_above(value, least, or_equal=True)):
                expected = f"a {'whole number' if name != 'seconds' else 'number'} of {least} or more"
                raise TrainingError(f"Checkpoints {name}", expected, describe_value(value), "or leave it out")
        self.folder = Path(folder)
        self.every = every
        self.seconds = seconds
        self.figure = best
        self.mode = mode or (None if best is None else _mode_of(best))
        if self.mode is not None:
            check_mode("Checkpoints mode", self.mode)
        self.keep = keep
        self.last = self.folder / f"last{ENDING}"
        self.best = self.folder / f"best{ENDING}"
        self.best_figure: float | None = None
        self.best_epoch: int | None = None
        self._steps = 0  # when the last checkpoint was written
        self._time = 0.0

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Make the folder and keep it from other trainings, within a ``with`` statement.

        Raises:
            TrainingError: when another training writes to it, or it is a file.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise TrainingError("Checkpoints folder", "a folder", f"the file {self.folder}", "name another")
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            yield

    def on_fit_start(self, trainer: Trainer) -> None:
        """Remove what processes that were killed while they wrote have left in the folder."""
        self._steps, self._time = trainer.steps, time.monotonic()
        if trainer.parallel.is_first:
            remove_partial(self.folder, [f"{name}{ENDING}" for name in ("last", "best", "epoch-*")])

    def on_step_end(self, trainer: Trainer) -> None:
        """Write a checkpoint if it is time."""
        if not trainer.fitting:
            return
        steps_over = self.every is not None and trainer.steps - self._steps >= self.every
        time_over = self.seconds is not None and time.monotonic() - self._time >= self.seconds
        if steps_over or time_over:
            self._write(trainer, self.last)

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Write the best parameters, if these are, and the checkpoints of the epoch."""
        if self.figure is not None and self.mode is not None:
            value = figure_of("Checkpoints best", trainer.figures, self.figure)
            if math.isfinite(value) and is_better(value, self.best_figure, self.mode):
                self.best_figure, self.best_epoch = value, trainer.epoch
                # before the checkpoint that says so; a run killed in between finds the same best again
                self._write_best(trainer)
        if self.keep and trainer.parallel.is_first:
            self._write(trainer, self._of_epoch(trainer.epoch))
            self._of_epoch(trainer.epoch - self.keep).unlink(missing_ok=True)
        self._write(trainer, self.last)

    def on_interrupt(self, trainer: Trainer) -> None:
        """Write a checkpoint of the last step that is done."""
        self._write(trainer, self.last)

    def state(self) -> dict[str, Any]:
        """Return the best figure and its epoch."""
        return {"best_figure": self.best_figure, "best_epoch": self.best_epoch}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self.best_figure, self.best_epoch = state["best_figure"], state["best_epoch"]

    def restore_best(self, trainer: Trainer) -> None:
        """Give the parameters the values of the best epoch; of several processes rank 0 reads them.

        Raises:
            TrainingError: when no epoch was the best yet, or the file is of another model.
            ReadError: when the file is damaged.
        """
        best = self._read_best(trainer) if trainer.parallel.is_first else None
        assign(trainer.program.params, from_first(trainer.parallel.communicator, best))

    def _read_best(self, trainer: Trainer) -> dict[str, Array]:
        if not self.best.exists():
            fix = "give Checkpoints best='dev_loss', say, and fit"
            raise TrainingError("restore_best", "a file of the best parameters", f"no {self.best}", fix)
        arrays, header = files.read(self.best, KIND, "fit anew")
        if header.get("notes", {}).get(DIGEST) != trainer.model_digest:
            expected, fix = "the best parameters of this model", "give another folder"
            raise TrainingError(str(self.best), expected, "those of another", fix)
        return {name: arrays[name] for name in trainer.program.params}

    def _write_best(self, trainer: Trainer) -> None:
        """Save the program; with averages of parameters, if the best figure is one of averages."""
        if not trainer.parallel.is_first:
            return
        averages: dict[str, Array] = {}
        if self.figure is not None and self.figure.startswith(AVERAGED):
            for callback in trainer.callbacks:
                averages |= callback.averages if isinstance(callback, AverageWeights) else {}
        notes = {"figure": self.figure, "value": self.best_figure, "epoch": self.best_epoch}
        with exchanged(trainer.program.params, averages):
            trainer.program.save(self.best, notes | {DIGEST: trainer.model_digest})

    def _write(self, trainer: Trainer, path: Path) -> None:
        if trainer.parallel.is_first:
            checkpoint.write(path, state_of(trainer))
        self._steps, self._time = trainer.steps, time.monotonic()

    def _of_epoch(self, number: int) -> Path:
        return self.folder / f"epoch-{number:04}{ENDING}"


def _mode_of(figure: str) -> Mode:
    """Return whether lower or higher is better, as the name of a figure says.

    >>> _mode_of("dev_accuracy"), _mode_of("dev_loss")
    ('max', 'min')
    """
    modes = [mode for mode, parts in MODES.items() if any(part in str(figure) for part in parts)]
    if len(modes) != 1:
        expected = f"a name with one of {', '.join(part for parts in MODES.values() for part in parts)}"
        raise TrainingError("Checkpoints best", expected, repr(figure), "or give mode='min' or mode='max'")
    return modes[0]
