"""Ends of training: where a figure gets no better, or time is over."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from foldbatch.errors import TrainingError
from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.callbacks.figures import Mode, check_mode, figure_of, is_better
from foldbatch.train.checks import is_above
from foldbatch.train.resuming import assign

if TYPE_CHECKING:
    from foldbatch.params import Array
    from foldbatch.train.trainer import Trainer

BEST = "best/"  # before the names of parameters, in a state


class EarlyStopping(Callback):
    """Stops training where a figure got no better for `patience` epochs.

    Args:
        figure: such as ``"dev_accuracy"``.
        mode: ``"min"`` where lower is better, ``"max"`` where higher is.
        patience: how many epochs without a better figure end the training.
        min_delta: by how much a figure has to be better to count.
        restore: at the end of `fit`, give all parameters the values that they had after the best epoch. A
            `fit` that is cut off within an epoch restores nothing.

    Where patience was over once, a later `fit` does not train.

    Attributes:
        best: the best figure, or None.
        best_epoch: the number of its epoch, counted from 1, or None.

    Raises:
        TrainingError: when a setting is out of range.
        UnknownNameError: at an epoch's end, when there is no such figure.

    >>> patient = EarlyStopping("dev_accuracy", "max", patience=3)
    >>> patient.best is None
    True
    """

    def __init__(
        self,
        figure: str,
        mode: Mode,
        *,
        patience: int = 5,
        min_delta: float = 0.0,
        restore: bool = False,
    ) -> None:
        check_mode("EarlyStopping mode", mode)
        if patience < 1:
            raise TrainingError("EarlyStopping patience", "1 epoch or more", repr(patience), "for example 5")
        self.figure = figure
        self.mode = mode
        self.patience = patience
        self.min_delta = min_delta
        self.restore = restore
        self.best: float | None = None
        self.best_epoch: int | None = None
        self._waited = 0
        self._parameters: dict[str, Array] = {}
        self._in_epoch = False

    def on_fit_start(self, trainer: Trainer) -> None:
        """Stop at once where patience was over before, also before a checkpoint."""
        self._stop_late(trainer)

    def on_step_start(self, trainer: Trainer) -> None:
        """Note that an epoch is under way."""
        self._in_epoch = True

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Look at the figure; keep the parameters of the best epoch, or stop."""
        self._in_epoch = False
        value = figure_of("EarlyStopping", trainer.figures, self.figure)
        if is_better(value, self.best, self.mode, self.min_delta):
            self.best, self.best_epoch, self._waited = value, trainer.epoch, 0
            if self.restore:
                self._parameters = {name: np.array(a) for name, a in trainer.program.params.items()}
            return
        self._waited += 1
        self._stop_late(trainer)

    def on_fit_end(self, trainer: Trainer) -> None:
        """Restore the parameters of the best epoch, if that is wanted."""
        if self._parameters and not self._in_epoch:
            assign(trainer.program.params, self._parameters)

    def state(self) -> dict[str, Any]:
        """Return the best figure, how long it has lasted, and the parameters of its epoch."""
        state = {"best": self.best, "best_epoch": self.best_epoch, "waited": self._waited}
        return state | {BEST + name: array for name, array in self._parameters.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over, as copies, what `state` returned."""
        self.best, self.best_epoch, self._waited = state["best"], state["best_epoch"], state["waited"]
        self._parameters = {
            key.removeprefix(BEST): np.array(array) for key, array in state.items() if key.startswith(BEST)
        }

    def _stop_late(self, trainer: Trainer) -> None:
        if self._waited >= self.patience:
            since = "" if self.best is None else f" than {self.best:.6g} of epoch {self.best_epoch}"
            trainer.stop(f"{self.figure} got no better{since} for {self._waited} epochs")


class TimeLimit(Callback):
    """Stops training after the epoch in which so many seconds of training are over.

    The time before a checkpoint counts where training is resumed.

    Args:
        seconds: above 0.

    Raises:
        TrainingError: when it is not.

    >>> TimeLimit(3600).seconds
    3600
    """

    def __init__(self, seconds: float) -> None:
        if not is_above(seconds, 0):
            raise TrainingError("TimeLimit seconds", "a number above 0", repr(seconds), "for example 3600")
        self.seconds = seconds
        self._spent = 0.0
        self._since: float | None = None

    def on_fit_start(self, trainer: Trainer) -> None:
        """Start the clock; stop at once where time was over before, also before a checkpoint."""
        self._since = time.monotonic()
        self._stop_late(trainer)

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Read the clock."""
        self._read_clock()
        self._stop_late(trainer)

    def on_fit_end(self, trainer: Trainer) -> None:
        """Stop the clock."""
        self._read_clock()
        self._since = None

    def state(self) -> dict[str, Any]:
        """Return the seconds spent."""
        self._read_clock()
        return {"spent": self._spent}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self._spent = state["spent"]

    def _read_clock(self) -> None:
        if self._since is not None:
            now = time.monotonic()
            self._spent, self._since = self._spent + now - self._since, now

    def _stop_late(self, trainer: Trainer) -> None:
        if self._spent >= self.seconds:
            trainer.stop(f"{self.seconds:g} seconds are over")
