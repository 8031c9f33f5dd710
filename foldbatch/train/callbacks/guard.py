"""NaNGuard: training ends where a loss or a gradient is NaN or infinite, and says where that began."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from foldbatch.engines.nonfinite import first_not_finite
from foldbatch.engines.pending import Pending
from foldbatch.errors import ParameterError, TrainingError
from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.checks import NUMBERED, noting
from foldbatch.train.resuming import LATE

if TYPE_CHECKING:
    from foldbatch.train.trainer import Trainer


@dataclass(frozen=True, slots=True)
class Seen:
    """What is kept of a batch until its loss is read.

    Attributes:
        step: the number of the step in training, counted from 1.
        drawn: the step that its random numbers were drawn for.
        indices: of its examples in the training set.
        examples: of the batch.
        loss: the sum over the batch.
    """

    step: int
    drawn: int
    indices: Sequence[int]
    examples: Any
    loss: float


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
        self._seen: list[Seen] = []
        self._last: Seen | None = None  # whose loss was finite; of its update the next batch tells

    def on_gradients(self, trainer: Trainer) -> None:
        """Look at loss and gradients, or keep the batch until its loss is read."""
        batch = trainer.batch
        drawn = trainer.program._drawn
        seen = Seen(trainer.steps + 1, drawn, batch.indices, batch.examples, batch.loss)
        if not isinstance(batch.loss, Pending):
            if not math.isfinite(batch.loss) or first_not_finite(batch.gradients) is not None:
                _refuse(trainer, [seen])
            return
        self._seen.append(seen)

    def on_step_end(self, trainer: Trainer) -> None:
        """Read the losses that are old enough; the device has the last update then."""
        if self.every is not None and trainer.steps % self.every == 0:
            self._read(trainer)
        elif len(self._seen) > LATE:
            self._read(trainer, LATE)

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Read the losses that are still to be read."""
        self._read(trainer)

    def on_fit_end(self, trainer: Trainer) -> None:
        """Read them also where an error ended the epoch: reading another value may have raised it."""
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


def _refuse(trainer: Trainer, suspects: Sequence[Seen]) -> NoReturn:
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
