"""ReduceOnPlateau: a lower learning rate where a figure gets no better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foldbatch.errors import TrainingError
from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.callbacks.figures import Mode, check_mode, figure_of, is_better

if TYPE_CHECKING:
    from foldbatch.train.trainer import Trainer


class ReduceOnPlateau(Callback):
    """Multiplies the learning rate by a factor where a figure got no better for more than `patience` epochs.

    Args:
        figure: such as ``"dev_loss"``.
        mode: ``"min"`` where lower is better, ``"max"`` where higher is.
        factor: between 0 and 1.
        patience: how many epochs without a better figure are borne.
        min_delta: by how much a figure has to be better to count.
        cooldown: for how many epochs after a reduction none is counted.
        min_lr: below this the rate is not lowered.

    The figure ``lr`` is the rate of the last step.

    Raises:
        TrainingError: when a setting is out of range.
        UnknownNameError: at an epoch's end, when there is no such figure.

    >>> halved = ReduceOnPlateau("dev_loss", "min", factor=0.5, patience=2)
    """

    steers = True

    def __init__(
        self,
        figure: str,
        mode: Mode,
        *,
        factor: float = 0.1,
        patience: int = 10,
        min_delta: float = 0.0,
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        check_mode("ReduceOnPlateau mode", mode)
        if not 0 < factor < 1:
            fix = "for example 0.5"
            raise TrainingError("ReduceOnPlateau factor", "a number between 0 and 1", repr(factor), fix)
        self.figure = figure
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.min_delta = min_delta
        self.cooldown = cooldown
        self.min_lr = min_lr
        self._best: float | None = None
        self._waited = 0
        self._resting = 0

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Look at the figure, and lower the rate for the next epoch."""
        optimizer = trainer.optimizer
        value = figure_of("ReduceOnPlateau", trainer.figures, self.figure)
        trainer.figures["lr"] = optimizer.lr
        self._waited += 1
        if is_better(value, self._best, self.mode, self.min_delta):
            self._best, self._waited = value, 0
        if self._resting:
            self._resting, self._waited = self._resting - 1, 0
        if self._waited > self.patience:
            optimizer.lr = min(optimizer.lr, max(optimizer.lr * self.factor, self.min_lr))
            self._resting, self._waited = self.cooldown, 0

    def state(self) -> dict[str, Any]:
        """Return the best figure and how long it has lasted."""
        return {"best": self._best, "waited": self._waited, "resting": self._resting}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self._best, self._waited, self._resting = state["best"], state["waited"], state["resting"]
