"""Checkpoints: files from which a killed training goes on, and the parameters of the best epoch."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldbatch.errors import TrainingError
from foldbatch.train import checkpoint
from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.callbacks.figures import Mode, check_mode, figure_of, is_better
from foldbatch.train.resuming import best_of, state_of
from foldbatch.types import describe_value

if TYPE_CHECKING:
    from foldbatch.params import Array
    from foldbatch.train.trainer import Trainer

AVERAGED = "dev_averaged_"  # begins the names of figures of averaged parameters
ENDING = ".safetensors"
MODES: dict[Mode, tuple[str, ...]] = {  # by what is part of a figure's name
    "min": ("loss", "error", "mse", "mae", "perplexity"),
    "max": ("accuracy", "f1", "top_"),
}


class Checkpoints(Callback):
    """Keeps the state of a training in a folder, so that ``fit(..., resume=True)`` goes on from it.

    ``last.safetensors`` is written at the end of each epoch, and within epochs as often as is asked for; also
    when Ctrl-C or SIGTERM ends the `fit`. ``best.safetensors`` has the parameters of the best epoch. A
    file is complete under its name, or the former one stays. The trainer calls this callback last.

    Args:
        folder: is made if there is none.
        every: after how many steps a checkpoint is written; so at most as many steps are lost.
        seconds: after how many seconds one is written, when the step under way is done.
        best: the figure that says which epoch is the best, such as ``"dev_accuracy"``.
        mode: ``"min"`` where lower is better, ``"max"`` where higher is; by default what the figure's name
            says.
        keep: how many checkpoints of past epochs stay besides, as ``epoch-0012.safetensors``.

    Attributes:
        last: the path of the last checkpoint.
        best: the path of the best parameters.
        best_figure: the best figure, or None.
        best_epoch: the number of its epoch, counted from 1, or None.

    Raises:
        TrainingError: when a setting is out of range, or the name of the figure does not say the mode; in
            `fit`, when the folder is a file.
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
            if value is not None and value < least:
                expected = f"a number of {least} or more"
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

    def on_fit_start(self, trainer: Trainer) -> None:
        """Make the folder, and remove what processes that were killed while they wrote have left there."""
        if self.folder.exists() and not self.folder.is_dir():
            raise TrainingError("Checkpoints folder", "a folder", f"the file {self.folder}", "name another")
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("last", "best", "epoch-*"):
            for left in self.folder.glob(f".{name}{ENDING}.*.partial"):
                left.unlink(missing_ok=True)
        self._steps, self._time = trainer.steps, time.monotonic()

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
            if is_better(value, self.best_figure, self.mode):
                self.best_figure, self.best_epoch = value, trainer.epoch
                # before the checkpoint that says so; a run killed in between finds the same best again
                self._write_best(trainer)
        if self.keep:
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

    def _write_best(self, trainer: Trainer) -> None:
        averages: dict[str, Array] = {}
        if self.figure is not None and self.figure.startswith(AVERAGED):
            for callback in trainer.callbacks:
                averages |= getattr(callback, "averages", {})
        checkpoint.write(self.best, best_of(trainer, averages))

    def _write(self, trainer: Trainer, path: Path) -> None:
        checkpoint.write(path, state_of(trainer))
        self._steps, self._time = trainer.steps, time.monotonic()

    def _of_epoch(self, number: int) -> Path:
        return self.folder / f"epoch-{number:04}{ENDING}"


def _mode_of(figure: str) -> Mode:
    """Return whether lower or higher is better, as the name of a figure says.

    >>> _mode_of("dev_accuracy"), _mode_of("dev_loss")
    ('max', 'min')
    """
    modes = [mode for mode, parts in MODES.items() if any(part in figure for part in parts)]
    if len(modes) != 1:
        expected = f"a name with one of {', '.join(part for parts in MODES.values() for part in parts)}"
        raise TrainingError("Checkpoints best", expected, repr(figure), "or give mode='min' or mode='max'")
    return modes[0]
