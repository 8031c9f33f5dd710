"""Parameters and gradients on their way: averages, limits, and a guard against what is not finite."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from foldbatch.blocks.values import is_int
from foldbatch.engines.nonfinite import first_not_finite
from foldbatch.engines.pending import Pending
from foldbatch.errors import BackendError, ParameterError, TrainingError
from foldbatch.params.parameters import Array, Gradient, Remote, SparseRows
from foldbatch.system.renamed import renamed
from foldbatch.train.checks import NUMBERED, is_above, noting
from foldbatch.train.gradients import clip_by_global_norm
from foldbatch.train.resuming import LATE, assign, exchanged
from foldbatch.train.trainer import Callback, Trainer

MEMORY = 9  # in its first steps a moving average remembers a tenth of all of them
AVERAGE = "average/"  # before the names of parameters, in a state
BLOCK = 1 << 14  # numbers that are averaged at once, so that they stay in the cache


class AverageWeights(Callback):
    """Averages the trainable parameters, and evaluates the validation set with the averages.

    Put it before callbacks that watch its figures, and before one that writes checkpoints. A checkpoint holds
    the parameters that are trained; the averages are part of this callback's state.

    Args:
        decay: for an exponential moving average: after each step, ``average = d * average + (1 - d) *
            parameter``, beginning with the first parameters seen. In step n, d is `decay`, or if that is less
            ``n / (n + 9)``, so that it soon forgets what training began with. Without
            `decay`, the average is the mean of the parameters after the epochs.
        start: how many epochs are over before the averaging begins.
        validation: examples to evaluate with the averages at the end of each epoch: figures
            ``validation_averaged_NAME``. Before the averaging begins they are those of the parameters.
        keep: at the end of `fit`, give the parameters their averages. A `fit` that is cut off within an epoch
            leaves them as they are.

    Attributes:
        averages: the averages by parameter name, each of its parameter's shape and dtype; empty at first.

    On a device each step of an exponential average waits for the parameters; the mean of epochs does not.

    Raises:
        TrainingError: when `decay` is not between 0 and 1, or `start` is below 0.

    >>> import foldbatch as fb
    >>> w = fb.Parameter([], init=0.0, name="w")
    >>> error = fb.Scalar() >> fb.Function(lambda x: (w - x) ** 2)
    >>> mean = AverageWeights(validation=[1.0])
    >>> trainer = fb.train.Trainer(fb.compile(error >> fb.Loss()), fb.SGD(0.25), callbacks=[mean])
    >>> figures = trainer.fit([1.0], epochs=2)
    >>> trainer.program.params["w"], [each["validation_averaged_loss"] for each in figures]
    (array(0.625, dtype=float32), [0.25, 0.140625])

    Source: Polyak and Juditsky 1992; Izmailov and others 2018.
    """

    in_state = ("_count",)

    @renamed(dev="validation")
    def __init__(
        self,
        decay: float | None = None,
        *,
        start: int = 0,
        validation: Sequence[Any] | None = None,
        keep: bool = True,
    ) -> None:
        if decay is not None and not (is_above(decay, 0) and decay < 1):
            raise TrainingError("AverageWeights decay", "a number between 0 and 1", repr(decay), "try 0.999")
        if not (is_int(start) and start >= 0):
            raise TrainingError("AverageWeights start", "0 epochs or more", repr(start), "it counts epochs")
        self.decay = decay
        self.start = start
        self.validation = validation
        self.keep = keep
        self.averages: dict[str, Array] = {}
        self._count = 0
        self._in_epoch = False

    def on_step_start(self, trainer: Trainer) -> None:
        self._in_epoch = True

    def on_step_end(self, trainer: Trainer) -> None:
        if self.decay is not None and trainer.epoch >= self.start:
            self._count += 1
            self._take(trainer, max(1 - self.decay, MEMORY / (self._count + MEMORY)))

    def on_epoch_end(self, trainer: Trainer) -> None:
        self._in_epoch = False
        if self.decay is None and trainer.epoch > self.start:
            self._count += 1
            self._take(trainer, 1 / self._count)
        if self.validation is not None:
            with exchanged(trainer.program.params, self.averages):
                figures = trainer.evaluate(self.validation)
            trainer.figures.update({f"validation_averaged_{name}": value for name, value in figures.items()})

    def on_fit_end(self, trainer: Trainer) -> None:
        if self.keep and self.averages and not self._in_epoch:
            assign(trainer.program.params, self.averages)

    def state(self) -> dict[str, Any]:
        averages = {AVERAGE + name: np.array(array) for name, array in self.averages.items()}
        return super().state() | averages

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.averages = {
            key.removeprefix(AVERAGE): np.array(array)
            for key, array in state.items()
            if key.startswith(AVERAGE)
        }

    def _take(self, trainer: Trainer, weight: float) -> None:
        """Move the averages towards the parameters by a share of the way, at first all of it."""
        for name, parameter in trainer.program.params.parameters.items():
            if not parameter.trainable:
                continue
            average = self.averages.get(name)
            if average is None:
                self.averages[name] = np.array(parameter.value)
            else:
                _approach(average.reshape(-1), parameter.value.reshape(-1), weight)


def _approach(average: Array, target: Array, weight: float) -> None:
    for first in range(0, len(average), BLOCK):
        part = average[first : first + BLOCK]
        way = target[first : first + BLOCK] - part
        way *= weight
        part += way


class ClipGradients(Callback):
    """Limits the gradients of the mean loss of a batch before each update.

    Args:
        max_norm: the greatest joint Euclidean norm; greater gradients are scaled by one factor.
        max_value: the greatest absolute value of an entry, cut before norms are taken; not on a device.

    Raises:
        TrainingError: when neither is given, or one is not above 0.
        BackendError: in a step, when `max_value` is given and gradients are on a device.

    >>> ClipGradients(5.0).max_norm
    5.0

    Source: Pascanu, Mikolov and Bengio 2013, algorithm 1.
    """

    steers = True

    def __init__(self, max_norm: float | None = None, *, max_value: float | None = None) -> None:
        limits = [limit for limit in (max_norm, max_value) if limit is not None]
        if not limits or not all(is_above(limit, 0) for limit in limits):
            found = f"max_norm={max_norm!r}, max_value={max_value!r}"
            raise TrainingError("ClipGradients", "a limit above 0", found, "for example max_norm=5.0")
        self.max_norm = max_norm
        self.max_value = max_value

    def on_gradients(self, trainer: Trainer) -> None:
        batch = trainer.batch
        count = max(len(batch.examples), 1)
        if self.max_value is not None:
            limit = self.max_value * count
            batch.gradients = {name: _cut(gradient, limit) for name, gradient in batch.gradients.items()}
        if self.max_norm is not None:
            batch.gradients, _ = clip_by_global_norm(batch.gradients, self.max_norm * count)


def _cut(gradient: Gradient, limit: float) -> Any:
    values: Any = gradient.values if isinstance(gradient, SparseRows) else gradient
    if isinstance(values, Remote):
        fix = "clip by max_norm"
        raise BackendError("ClipGradients max_value", "gradients of the host", "those of a device", fix)
    cut = np.clip(values, -limit, limit)
    return replace(gradient, values=cut) if isinstance(gradient, SparseRows) else cut


@dataclass(frozen=True, slots=True)
class SeenBatch:
    """What is kept of a batch until its loss is read."""

    step: int  # the number of the step in training, counted from 1
    drawn: int  # the step that its random numbers were drawn for
    indices: Sequence[int]  # of its examples in the training set
    examples: Any  # of the batch
    loss: float  # the sum over the batch


class NaNGuard(Callback):
    """Raises an error that names example, block and op where a loss or a gradient is NaN or infinite.

    The update of that step is not made. The example has its number in the training set. Put the guard before
    callbacks that change gradients.

    Args:
        every: on a device, after how many steps all losses are read, the last one too: the host waits. By
            default each loss is read two steps later, so that the device always has something to do, and the
            last ones at the end of an epoch. On the host every step is looked at.

    Raises:
        TrainingError: when `every` is below 1; in a step, when a loss or a gradient is not finite.

    >>> import foldbatch as fb
    >>> w = fb.Parameter([], init=1.0, name="w")
    >>> ratio = fb.Record({"a": fb.Scalar(), "b": fb.Scalar()}) >> fb.Function(lambda a, b: w * a / b)
    >>> guarded = fb.train.Trainer(fb.compile(ratio >> fb.Loss()), fb.SGD(0.1), callbacks=[NaNGuard()])
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):  # the program warns of it, too
    ...     guarded.fit([{"a": 1, "b": 1}, {"a": 1, "b": 0}], epochs=1)
    Traceback (most recent call last):
    foldbatch.errors.TrainingError: step 1: expected a finite loss and finite gradients, found ...
    """

    def __init__(self, every: int | None = None) -> None:
        if every is not None and every < 1:
            raise TrainingError("NaNGuard every", "1 step or more", repr(every), "None is two steps later")
        self.every = every
        self._seen: list[SeenBatch] = []
        self._last: SeenBatch | None = None  # whose loss was finite; of its update the next batch tells

    def on_gradients(self, trainer: Trainer) -> None:
        batch = trainer.batch
        drawn = trainer.program._drawn
        seen = SeenBatch(trainer.steps + 1, drawn, batch.indices, batch.examples, batch.loss)
        if not isinstance(batch.loss, Pending):
            if not math.isfinite(batch.loss) or first_not_finite(batch.gradients) is not None:
                _refuse(trainer, [seen])
            return
        self._seen.append(seen)

    def on_step_end(self, trainer: Trainer) -> None:
        if self.every is not None and trainer.steps % self.every == 0:
            self._read(trainer)
        elif len(self._seen) > LATE:
            self._read(trainer, LATE)

    def on_epoch_end(self, trainer: Trainer) -> None:
        self._read(trainer)

    def on_fit_end(self, trainer: Trainer) -> None:
        try:
            self._read(trainer)
        finally:
            self._seen, self._last = [], None

    def _read(self, trainer: Trainer, left: int = 0) -> None:
        """Read all pending losses but the last `left`, in order.

        A device also tells of gradients then: with a loss, whether the update before its batch was refused.
        """
        if not self._seen:
            return
        while len(self._seen) > left:
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
        if not left and self._last is not None and _refused_update(trainer):
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
    """Find the first of some batches with a value that is not finite; raise the error that tells of it."""
    _refused_update(trainer)  # or else `find_nan` would raise that error
    for batch in suspects:
        place = trainer.program.find_nan(batch.examples, step=batch.drawn)
        if place is not None:
            numbered = replace(place, example=batch.indices[place.example])
            found = ", ".join(line.strip() for line in repr(numbered).splitlines())
            break
    else:
        batch, found = suspects[0], "a NaN or an infinity"
    expected = "a finite loss and finite gradients"
    fix = "this step changed no parameter; lower the learning rate, clip gradients, or mend the example"
    raise TrainingError(f"step {batch.step}", expected, found, fix)
