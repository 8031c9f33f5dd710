"""Learning rates while training, and its end: schedules, plateaus, patience, time."""

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from foldbatch.errors import TrainingError, UnknownNameError, with_nearest
from foldbatch.params.parameters import Array
from foldbatch.system.renamed import renamed
from foldbatch.train.checks import is_above
from foldbatch.train.figures import Mode, check_mode, figure_of, is_better, mode_of
from foldbatch.train.resuming import assign
from foldbatch.train.schedules import Factor
from foldbatch.train.trainer import Callback, Trainer
from foldbatch.types import describe_value

BEST = "best/"  # before the names of parameters, in a state


MOMENTS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class LambdaCallback(Callback):
    """Calls functions of the trainer at moments of the training.

    Args:
        moments: functions by the names of `Callback`'s methods, such as ``on_epoch_end``.

    Raises:
        UnknownNameError: when there is no such moment.
        TrainingError: when something is no function.

    >>> import foldbatch as fb
    >>> w = fb.Parameter([], init=0.0, name="w")
    >>> error = fb.Scalar() >> fb.Function(lambda x: (w - x) ** 2)
    >>> show = LambdaCallback(on_epoch_end=lambda trainer: print(trainer.figures["loss"]))
    >>> trainer = fb.train.Trainer(fb.compile(error >> fb.Loss()), fb.SGD(0.25), callbacks=[show])
    >>> figures = trainer.fit([1.0], epochs=2)
    1.0
    0.25
    """

    def __init__(self, **moments: Callable[[Trainer], object]) -> None:
        for name, function in moments.items():
            if name not in MOMENTS:
                expected = f"a moment of {', '.join(MOMENTS)}"
                raise UnknownNameError("LambdaCallback", expected, with_nearest(name, MOMENTS))
            if not callable(function):
                fix = "give a function of the trainer"
                raise TrainingError(f"LambdaCallback {name}", "a function", describe_value(function), fix)
            setattr(self, name, function)


class Monitored(Callback):
    """A callback that watches whether a figure gets better, from epoch to epoch."""

    def __init__(self, monitor: str, mode: Mode | None, min_delta: float) -> None:
        self.mode = mode_of(monitor) if mode is None else mode
        check_mode(f"{type(self).__name__} mode", self.mode)
        self.monitor = monitor
        self.min_delta = min_delta
        self.best: float | None = None
        self._waited = 0

    def _got_better(self, trainer: Trainer) -> bool:
        value = figure_of(type(self).__name__, trainer.figures, self.monitor)
        better = is_better(value, self.best, self.mode, self.min_delta)
        self._waited = 0 if better else self._waited + 1
        self.best = value if better else self.best
        return better


class EarlyStopping(Monitored):
    """Stops training where a figure got no better for `patience` epochs.

    Args:
        monitor: the figure, such as ``"validation_accuracy"``.
        mode: ``"min"`` where lower is better, ``"max"`` where higher is; by default what the name says.
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

    >>> patient = EarlyStopping("validation_accuracy", "max", patience=3)
    >>> patient.best is None
    True
    """

    in_state = "best", "best_epoch", "_waited"

    @renamed(figure="monitor")
    def __init__(
        self,
        monitor: str,
        mode: Mode | None = None,
        *,
        patience: int = 5,
        min_delta: float = 0.0,
        restore: bool = False,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        if patience < 1:
            raise TrainingError("EarlyStopping patience", "1 epoch or more", repr(patience), "for example 5")
        self.patience = patience
        self.restore = restore
        self.best_epoch: int | None = None
        self._parameters: dict[str, Array] = {}
        self._in_epoch = False

    def on_fit_start(self, trainer: Trainer) -> None:
        self._stop_late(trainer)

    def on_step_start(self, trainer: Trainer) -> None:
        self._in_epoch = True

    def on_epoch_end(self, trainer: Trainer) -> None:
        self._in_epoch = False
        if self._got_better(trainer):
            self.best_epoch = trainer.epoch
            if self.restore:
                self._parameters = {name: np.array(a) for name, a in trainer.program.params.items()}
        else:
            self._stop_late(trainer)

    def on_fit_end(self, trainer: Trainer) -> None:
        if self._parameters and not self._in_epoch:
            assign(trainer.program.params, self._parameters)

    def state(self) -> dict[str, Any]:
        return super().state() | {BEST + name: array for name, array in self._parameters.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._parameters = {
            key.removeprefix(BEST): np.array(array) for key, array in state.items() if key.startswith(BEST)
        }

    def _stop_late(self, trainer: Trainer) -> None:
        if self._waited >= self.patience:
            since = "" if self.best is None else f" than {self.best:.6g} of epoch {self.best_epoch}"
            trainer.stop(f"{self.monitor} got no better{since} for {self._waited} epochs")


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

    in_state = ("_spent",)

    def __init__(self, seconds: float) -> None:
        if not is_above(seconds, 0):
            raise TrainingError("TimeLimit seconds", "a number above 0", repr(seconds), "for example 3600")
        self.seconds = seconds
        self._spent = 0.0
        self._since: float | None = None

    def on_fit_start(self, trainer: Trainer) -> None:
        self._since = time.monotonic()
        self._stop_late(trainer)

    def on_epoch_end(self, trainer: Trainer) -> None:
        self._read_clock()
        self._stop_late(trainer)

    def on_fit_end(self, trainer: Trainer) -> None:
        self._read_clock()
        self._since = None

    def state(self) -> dict[str, Any]:
        self._read_clock()
        return super().state()

    def _read_clock(self) -> None:
        if self._since is not None:
            now = time.monotonic()
            self._spent, self._since = self._spent + now - self._since, now

    def _stop_late(self, trainer: Trainer) -> None:
        if self._spent >= self.seconds:
            trainer.stop(f"{self.seconds:g} seconds are over")


class ReduceLROnPlateau(Monitored):
    """Multiplies the learning rate by a factor where a figure got no better for more than `patience` epochs.

    Args:
        monitor: the figure, such as ``"validation_loss"``.
        mode: ``"min"`` where lower is better, ``"max"`` where higher is; by default what the name says.
        factor: between 0 and 1.
        patience: how many epochs without a better figure are borne.
        min_delta: by how much a figure has to be better to count.
        cooldown: for how many epochs after a reduction none is counted.
        min_lr: below this the rate is not lowered.

    The figure ``lr`` is the rate of the last step.

    Raises:
        TrainingError: when a setting is out of range.
        UnknownNameError: at an epoch's end, when there is no such figure.

    >>> halved = ReduceLROnPlateau("validation_loss", "min", factor=0.5, patience=2)
    """

    steers = True
    in_state = "best", "_waited", "_resting"

    @renamed(figure="monitor")
    def __init__(
        self,
        monitor: str,
        mode: Mode | None = None,
        *,
        factor: float = 0.1,
        patience: int = 10,
        min_delta: float = 0.0,
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        if not 0 < factor < 1:
            fix = "for example 0.5"
            raise TrainingError("ReduceLROnPlateau factor", "a number between 0 and 1", repr(factor), fix)
        self.factor = factor
        self.patience = patience
        self.cooldown = cooldown
        self.min_lr = min_lr
        self._resting = 0

    def on_epoch_end(self, trainer: Trainer) -> None:
        optimizer = trainer.optimizer
        self._got_better(trainer)
        trainer.figures["lr"] = optimizer.lr
        if self._resting:
            self._resting, self._waited = self._resting - 1, 0
        if self._waited > self.patience:
            optimizer.lr = min(optimizer.lr, max(optimizer.lr * self.factor, self.min_lr))
            self._resting, self._waited = self.cooldown, 0


class ReduceOnPlateau(ReduceLROnPlateau):
    """The former name of `ReduceLROnPlateau`, for one release."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        warnings.warn("ReduceOnPlateau is called ReduceLROnPlateau", DeprecationWarning, stacklevel=2)
        super().__init__(*arguments, **settings)


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
    in_state = "_base", "_factor"

    def __init__(
        self, schedule: Factor, every: Literal["step", "epoch"] = "step", *, lr: float | None = None
    ) -> None:
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
        if self.every == "epoch":
            self._apply(trainer, trainer.epoch)

    def on_step_start(self, trainer: Trainer) -> None:
        if self.every == "step":
            self._apply(trainer, trainer.steps)

    def on_epoch_end(self, trainer: Trainer) -> None:
        trainer.figures["lr"] = trainer.optimizer.lr

    def _apply(self, trainer: Trainer, count: int) -> None:
        if self._base is None:
            self._base = trainer.optimizer.lr
        factor = float(self.schedule(count))
        if factor != self._factor:
            trainer.optimizer.lr = max(self._base * factor, LEAST)
            self._factor = factor
