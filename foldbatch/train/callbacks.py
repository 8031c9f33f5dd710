"""Callbacks that steer a training: rates, its end, averages, limits, a guard against NaN and infinity.

Settings that do not fit raise `TrainingError`; figures and moments that are not there, `UnknownNameError`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, NoReturn

import numpy as np

from foldbatch.engines.nonfinite import first_not_finite
from foldbatch.engines.pending import Pending
from foldbatch.errors import ParameterError, TrainingError, UnknownNameError, with_nearest
from foldbatch.params.parameters import Array
from foldbatch.train.checks import NUMBERED, noting
from foldbatch.train.metrics import Mode, figure_of, is_better, mode_of
from foldbatch.train.numbers import checked, number, truth, whole_number
from foldbatch.train.optimizer import State, clip_by_global_norm
from foldbatch.train.resuming import LATE, assign, exchanged
from foldbatch.train.schedules import FACTOR, Factor
from foldbatch.train.trainer import Callback, Trainer
from foldbatch.types import describe_value

MOMENTS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class LambdaCallback(Callback):
    """Calls functions of the trainer at moments of the training.

    Args:
        moments: functions by the names of `Callback`'s methods, such as ``on_epoch_end``.

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


@dataclass(eq=False, repr=False)
class Monitored(Callback):
    """A callback that watches whether a figure gets better, from epoch to epoch."""

    monitor: str
    mode: Mode | None = None
    _: KW_ONLY
    min_delta: float = checked(number, 0, default=0.0)

    def __post_init__(self) -> None:
        self.mode = mode_of(type(self).__name__, self.monitor, self.mode)
        self.best: float | None = None
        self._waited = 0

    def _got_better(self, trainer: Trainer) -> bool:
        value = figure_of(type(self).__name__, trainer.figures, self.monitor)
        better = is_better(value, self.best, self.mode, self.min_delta)
        self._waited = 0 if better else self._waited + 1
        self.best = value if better else self.best
        return better


@dataclass(eq=False, repr=False)
class EarlyStopping(Monitored):
    """Stops training where a figure got no better for `patience` epochs.

    Args:
        monitor, mode, min_delta: see `ReduceLROnPlateau`.
        patience: how many epochs without a better figure end the training.

    Where patience was over once, a later `fit` does not train. The best parameters are those that
    ``Checkpoints(monitor=)`` keeps, see `Trainer.restore_best`.

    Attributes:
        best: the best figure, or None.
        best_epoch: the number of its epoch, counted from 1, or None.

    >>> patient = EarlyStopping("validation_accuracy", "max", patience=3)
    >>> patient.best is None
    True
    """

    in_state = "best", "best_epoch", "_waited"

    _: KW_ONLY
    patience: int = checked(whole_number, 1, "for example 5", default=5)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.best_epoch: int | None = None

    def on_fit_start(self, trainer: Trainer) -> None:
        self._stop_late(trainer)

    def on_epoch_end(self, trainer: Trainer) -> None:
        if self._got_better(trainer):
            self.best_epoch = trainer.epoch
        else:
            self._stop_late(trainer)

    def _stop_late(self, trainer: Trainer) -> None:
        if self._waited >= self.patience:
            since = "" if self.best is None else f" than {self.best:.6g} of epoch {self.best_epoch}"
            trainer.stop(f"{self.monitor} got no better{since} for {self._waited} epochs")


@dataclass(eq=False, repr=False)
class ReduceLROnPlateau(Monitored):
    """Multiplies the learning rate by a factor where a figure got no better for more than `patience` epochs.

    Args:
        monitor: the figure, such as ``"validation_loss"``.
        mode: ``"min"`` where lower is better, ``"max"`` where higher is; by default what the name says.
        factor: between 0 and 1.
        patience: how many epochs without a better figure are borne.
        min_delta: by how much a figure has to be better to count.
        min_lr: below this the rate is not lowered.

    The figure ``lr`` is the rate of the last step.

    >>> halved = ReduceLROnPlateau("validation_loss", "min", factor=0.5, patience=2)
    """

    steers = True
    in_state = "best", "_waited"

    _: KW_ONLY
    factor: float = checked(number, 0, 1, "for example 0.5", above=True, default=0.1)
    patience: int = checked(whole_number, 0, default=10)
    min_lr: float = checked(number, 0, default=0.0)

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Lower the learning rate where the monitored figure has not become better for `patience` epochs."""
        optimizer = trainer.optimizer
        self._got_better(trainer)
        trainer.figures["lr"] = optimizer.lr
        if self._waited > self.patience:
            optimizer.lr = min(optimizer.lr, max(optimizer.lr * self.factor, self.min_lr))
            self._waited = 0


MIN_RATE = 1e-12  # a learning rate must be above 0


@dataclass(eq=False, repr=False)
class Schedule(Callback):
    """Sets the learning rate to a base rate times a schedule's factor.

    The rate is written only where the factor changes. So after a warm-up another callback may lower it. The
    figure ``lr`` is the rate of an epoch's last step.

    Args:
        schedule: from a count to a factor; see `foldbatch.train.schedules`.
        every: ``"step"`` counts steps, ``"epoch"`` counts epochs; both are counted over all epochs.
        lr: the base rate; by default the optimizer's rate before the first step. With 1.0 the factors are the
            rates themselves.

    >>> w = fb.Parameter([], init=0.0, name="w")
    >>> error = fb.Scalar() >> fb.Function(lambda x: (w - x) ** 2)
    >>> halves = Schedule(fb.train.schedules.exponential(0.5), every="epoch")
    >>> trainer = fb.train.Trainer(fb.compile(error >> fb.Loss()), fb.SGD(0.1), callbacks=[halves])
    >>> [figures["lr"] for figures in trainer.fit([1.0, 2.0], epochs=3)]
    [0.1, 0.05, 0.025]
    """

    steers = True
    in_state = "lr", "_factor"

    schedule: Factor
    every: Literal["step", "epoch"] = "step"
    _: KW_ONLY
    lr: float | None = checked(
        number, 0, fix="leave it out for the optimizer's", above=True, optional=True, default=None
    )

    def __post_init__(self) -> None:
        if not callable(self.schedule):
            actual, fix = describe_value(self.schedule), "for example fb.train.schedules.cosine(1000)"
            raise TrainingError("Schedule", "a function of a count", actual, fix)
        if self.every not in ("step", "epoch"):
            actual, fix = repr(self.every), "it says what is counted"
            raise TrainingError("Schedule every", "'step' or 'epoch'", actual, fix)
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
        """Set the optimizer's learning rate for a count of steps or epochs."""
        if self.lr is None:
            self.lr = trainer.optimizer.lr
        factor = number(f"Schedule at {self.every} {count}", self.schedule(count), 0, fix=FACTOR)
        if factor != self._factor:
            trainer.optimizer.lr = max(self.lr * factor, MIN_RATE)
            self._factor = factor


MEMORY = 9  # in its first steps a moving average remembers a tenth of all of them


@dataclass(eq=False, repr=False)
class AverageWeights(Callback):
    """Averages the trainable parameters, and evaluates the validation set with the averages.

    Put it before callbacks that watch its figures, and before one that writes checkpoints. A checkpoint holds
    the parameters that are trained; the averages are part of this callback's state.

    Args:
        decay: for an exponential moving average: after each step, ``average = d * average + (1 - d) *
            parameter``, beginning with the first parameters seen. In step n, d is `decay`, or if that is less
            ``n / (n + 9)``, so that it soon forgets what training began with. Without
            `decay`, the average is the mean of the parameters after epochs or steps.
        every: ``"epoch"`` or ``"step"``: what is counted before the averaging begins; without `decay` also
            after what parameters are added to the mean.
        start: how many epochs, or steps, are over before the averaging begins.
        validation: examples to evaluate with the averages at the end of each epoch: figures
            ``validation_averaged_NAME``. Before the averaging begins they are those of the parameters.
        keep: at the end of `fit`, give the parameters their averages. A `fit` that is cut off within an epoch
            leaves them as they are.

    Attributes:
        averages: the averages by parameter name, each of its parameter's shape and dtype; empty at first.

    On a device each step of an average of steps waits for the parameters; the mean of epochs does not.

    >>> w = fb.Parameter([], init=0.0, name="w")
    >>> error = fb.Scalar() >> fb.Function(lambda x: (w - x) ** 2)
    >>> mean = AverageWeights(validation=[1.0])
    >>> trainer = fb.train.Trainer(fb.compile(error >> fb.Loss()), fb.SGD(0.25), callbacks=[mean])
    >>> figures = trainer.fit([1.0], epochs=2)
    >>> trainer.program.params["w"], [each["validation_averaged_loss"] for each in figures]
    (array(0.625, dtype=float32), [0.25, 0.140625])

    Source: Polyak and Juditsky 1992 (every="step"); Izmailov and others 2018.
    """

    in_state = ("_count",)

    decay: float | None = checked(number, 0, 1, "try 0.999", above=True, optional=True, default=None)
    _: KW_ONLY
    every: Literal["epoch", "step"] = "epoch"
    start: int = checked(whole_number, 0, "it counts epochs, or with every='step' steps", default=0)
    validation: Sequence[Any] | None = None
    keep: bool = checked(truth, default=True)

    def __post_init__(self) -> None:
        if self.every not in ("epoch", "step"):
            actual, fix = repr(self.every), "it says what is counted"
            raise TrainingError("AverageWeights every", "'epoch' or 'step'", actual, fix)
        self.averages: dict[str, Array] = {}
        self._count = 0
        self._in_epoch = False

    def on_fit_start(self, trainer: Trainer) -> None:
        parameters = trainer.program.params.parameters
        for name in parameters.keys() & self.averages.keys():  # of a file, perhaps
            self.averages[name] = np.array(parameters[name].fitting(self.averages[name], name))

    def on_step_start(self, trainer: Trainer) -> None:
        self._in_epoch = True

    def on_step_end(self, trainer: Trainer) -> None:
        """Move the average towards the parameters, where it is one of steps and has begun."""
        of_steps = self.every == "step"
        begun = trainer.steps > self.start if of_steps else trainer.epoch >= self.start
        if begun and (of_steps or self.decay is not None):
            self._count += 1
            exact = 1 / self._count  # of a mean
            share = exact if self.decay is None else max(1 - self.decay, MEMORY / (self._count + MEMORY))
            self._take(trainer, share)

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Add the parameters to the average of epochs; evaluate the average on the validation set."""
        self._in_epoch = False
        if self.decay is None and self.every == "epoch" and trainer.epoch > self.start:
            self._count += 1
            self._take(trainer, 1 / self._count)
        if self.validation is not None:
            with exchanged(trainer.program.params, self.averages):
                figures = trainer.evaluate(self.validation)
            trainer.figures.update({f"validation_averaged_{name}": value for name, value in figures.items()})

    def on_fit_end(self, trainer: Trainer) -> None:
        if self.keep and self.averages and not self._in_epoch:
            assign(trainer.program.params, self.averages)

    def state(self) -> State:
        return super().state() | {"averages": {name: np.array(a) for name, a in self.averages.items()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.averages = {name: np.array(a) for name, a in state["averages"].items()}

    def _take(self, trainer: Trainer, weight: float) -> None:
        """Move the averages towards the parameters by a share of the way, at first all of it."""
        for name, parameter in trainer.program.params.parameters.items():
            if not parameter.trainable:
                continue
            average = self.averages.get(name)
            if average is None:
                self.averages[name] = np.array(parameter.value)
            else:
                average += (parameter.value - average) * weight


@dataclass(eq=False, repr=False)
class ClipGradients(Callback):
    """Limits the gradients of the mean loss of a batch before each update.

    Args:
        max_norm: the greatest joint Euclidean norm; greater gradients are scaled by one factor.

    >>> ClipGradients(5.0).max_norm
    5.0

    Source: Pascanu, Mikolov and Bengio 2013, algorithm 1.
    """

    steers = True

    max_norm: float = checked(number, 0, fix="for example 5.0", above=True)

    def on_gradients(self, trainer: Trainer) -> None:
        batch = trainer.batch
        count = max(batch.size, 1)
        batch.gradients, _ = clip_by_global_norm(batch.gradients, self.max_norm * count)


@dataclass(frozen=True, slots=True)
class SeenBatch:
    """A batch whose loss is still to be read: its examples, and the numbers that repeat its run."""

    step: int  # the number of the step in training, counted from 1
    drawn: int  # the step that its random numbers were drawn for
    indices: Sequence[int]  # of its examples in the training set
    examples: Any  # of the batch
    loss: float  # the sum over the batch


class NaNGuard(Callback):
    """Raises an error that names example, block and op where a loss or a gradient is NaN or infinite.

    The update of that step is not made. The example has its number in the training set. Put the guard before
    callbacks that change gradients.

    On a device each loss is read two steps later, so that it always has something to do, and the last ones at
    the end of an epoch.

    Raises:
        TrainingError: in a step, when a loss or a gradient is not finite.

    >>> w = fb.Parameter([], init=1.0, name="w")
    >>> ratio = fb.Record({"a": fb.Scalar(), "b": fb.Scalar()}) >> fb.Function(lambda a, b: w * a / b)
    >>> guarded = fb.train.Trainer(fb.compile(ratio >> fb.Loss()), fb.SGD(0.1), callbacks=[NaNGuard()])
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):  # the program warns of it, too
    ...     guarded.fit([{"a": 1, "b": 1}, {"a": 1, "b": 0}], epochs=1)
    Traceback (most recent call last):
    foldbatch.errors.TrainingError: step 1: expected a finite loss and finite gradients, found ...
    """

    def __init__(self) -> None:
        self._seen: list[SeenBatch] = []
        self._last: SeenBatch | None = None  # whose loss was finite; of its update the next batch tells

    def on_gradients(self, trainer: Trainer) -> None:
        """Check loss and gradients of a batch before its update; a pending loss is only noted, for later.

        Raises:
            TrainingError: when one is NaN or infinite, with the operation that made it.
        """
        batch = trainer.batch
        drawn = trainer.program._drawn
        seen = SeenBatch(trainer.steps + 1, drawn, batch.indices, batch.examples, batch.loss)
        if not isinstance(batch.loss, Pending):
            if not math.isfinite(batch.loss) or first_not_finite(batch.gradients) is not None:
                _refuse(trainer, [seen])
            return
        self._seen.append(seen)

    def on_step_end(self, trainer: Trainer) -> None:
        if len(self._seen) > LATE:
            self._read(trainer, LATE)

    def on_epoch_end(self, trainer: Trainer) -> None:
        self._read(trainer)

    def on_fit_end(self, trainer: Trainer) -> None:
        try:
            self._read(trainer)
        finally:
            self._seen, self._last = [], None

    def _read(self, trainer: Trainer, retained: int = 0) -> None:
        """Read all pending losses but the last `retained`, in order.

        A device also tells of gradients then: with a loss, whether the update before its batch was refused.
        """
        if not self._seen:
            return
        while len(self._seen) > retained:
            batch = self._seen[0]
            try:
                with noting(NUMBERED, batch.indices):
                    good = math.isfinite(batch.loss)
            except ParameterError:
                last, seen = self._last, self._seen
                self._seen = []  # the error is raised once
                _refuse(trainer, seen if last is None else [last, *seen])
            if not good:
                self._seen = []
                _refuse(trainer, [batch])
            self._last = batch
            del self._seen[0]
        if not retained and self._last is not None and _refused_update(trainer):
            _refuse(trainer, [self._last])


def _refused_update(trainer: Trainer) -> bool:
    """Return whether a device refused an update since it was last asked: it says so when it is read."""
    params = trainer.program.params
    try:
        for name in sorted(params.parameters, key=lambda name: params.parameters[name].type.size)[:1]:
            params[name]  # the smallest one
    except ParameterError:
        return True
    return False


def _refuse(trainer: Trainer, suspects: Sequence[SeenBatch]) -> NoReturn:
    """Raise an error with the first value that is not finite, of the first batch that has one."""
    _refused_update(trainer)  # or else `find_nan` would raise that error
    for batch in suspects:
        place = trainer.program.find_nan(batch.examples, step=batch.drawn)
        if place is not None:
            numbered = replace(place, example=batch.indices[place.example])
            actual = ", ".join(line.strip() for line in repr(numbered).splitlines())
            break
    else:
        batch, actual = suspects[0], "a NaN or an infinity"
    expected = "a finite loss and finite gradients"
    fix = "this step changed no parameter; lower the learning rate, clip gradients, or mend the example"
    raise TrainingError(f"step {batch.step}", expected, actual, fix)
