"""Schedule: the learning rate as a function of steps or epochs done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foldbatch.errors import TrainingError
from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.checks import is_above
from foldbatch.train.schedules import Factor
from foldbatch.types import describe_value

if TYPE_CHECKING:
    from foldbatch.train.trainer import Trainer

LEAST = 1e-12  # a learning rate must be above 0


class Schedule(Callback):
    """Sets the learning rate to a base rate times a schedule's factor.

    The rate is written only where the factor changes. So after a warm-up another callback may lower it. The
    figure ``lr`` is the rate of an epoch's last step.

    Args:
        schedule: from a count to a factor; see `foldbatch.train.schedules`.
        every: ``"step"`` counts steps, ``"epoch"`` counts epochs; both are counted over all epochs.
        lr: the base rate; by default the optimizer's rate before the first step. With 1.0 the factors are the
            rates themselves.

    Raises:
        TrainingError: when `every` is neither, or `lr` is not above 0.

    >>> import foldbatch as fb
    >>> w = fb.Parameter([], init=0.0, name="w")
    >>> error = fb.Scalar() >> fb.Function(lambda x: (w - x) ** 2)
    >>> halves = Schedule(fb.train.schedules.exponential(0.5), every="epoch")
    >>> trainer = fb.train.Trainer(fb.compile(error >> fb.Loss()), fb.SGD(0.1), callbacks=[halves])
    >>> [figures["lr"] for figures in trainer.fit([1.0, 2.0], epochs=3)]
    [0.1, 0.05, 0.025]
    """

    steers = True

    def __init__(self, schedule: Factor, every: str = "step", *, lr: float | None = None) -> None:
        if not callable(schedule):
            fix = "for example fb.train.schedules.cosine(1000)"
            raise TrainingError("Schedule", "a function of a count", describe_value(schedule), fix)
        if every not in ("step", "epoch"):
            raise TrainingError("Schedule every", "'step' or 'epoch'", repr(every), "it says what is counted")
        if lr is not None and not is_above(lr, 0):
            raise TrainingError(
                "Schedule lr", "a number above 0", repr(lr), "leave it out for the optimizer's"
            )
        self.schedule = schedule
        self.every = every
        self._base = lr
        self._factor: float | None = None

    def on_epoch_start(self, trainer: Trainer) -> None:
        """Set the rate of an epoch."""
        if self.every == "epoch":
            self._apply(trainer, trainer.epoch)

    def on_step_start(self, trainer: Trainer) -> None:
        """Set the rate of a step."""
        if self.every == "step":
            self._apply(trainer, trainer.steps)

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Note the rate among the figures."""
        trainer.figures["lr"] = trainer.optimizer.lr

    def state(self) -> dict[str, Any]:
        """Return the base rate and the factor that was written last."""
        return {"base": self._base, "factor": self._factor}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self._base, self._factor = state["base"], state["factor"]

    def _apply(self, trainer: Trainer, count: int) -> None:
        if self._base is None:
            self._base = trainer.optimizer.lr
        factor = float(self.schedule(count))
        if factor != self._factor:
            trainer.optimizer.lr = max(self._base * factor, LEAST)
            self._factor = factor
