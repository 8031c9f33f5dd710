"""AverageWeights: the mean of the parameters along the way, which often does better than the last ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from foldbatch.blocks.values import is_int
from foldbatch.errors import TrainingError
from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.checks import is_above
from foldbatch.train.resuming import assign

if TYPE_CHECKING:
    from foldbatch.params import Array
    from foldbatch.train.trainer import Trainer

MEMORY = 9  # in its first steps a moving average remembers a tenth of all of them
AVERAGE = "average/"  # before the names of parameters, in a state
BLOCK = 1 << 14  # numbers that are averaged at once, so that they stay in the cache


class AverageWeights(Callback):
    """Averages the trainable parameters, and evaluates the dev set with the averages.

    Put it before callbacks that watch its figures, and before one that writes checkpoints. A checkpoint holds
    the parameters that are trained; the averages are part of this callback's state.

    Args:
        decay: for an exponential moving average: after each step, ``average = d * average + (1 - d) *
            parameter``, beginning with the first parameters seen. In step n, d is `decay`, or if that is less
            ``n / (n + 9)``, so that it soon forgets what training began with. Without
            `decay`, the average is the mean of the parameters after the epochs.
        start: how many epochs are over before the averaging begins.
        dev: examples to evaluate with the averages at the end of each epoch: figures ``dev_averaged_NAME``.
            Before the averaging begins they are those of the parameters.
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
    >>> mean = AverageWeights(dev=[1.0])
    >>> trainer = fb.train.Trainer(fb.compile(error >> fb.Loss()), fb.SGD(0.25), callbacks=[mean])
    >>> figures = trainer.fit([1.0], epochs=2)
    >>> trainer.program.params["w"], [each["dev_averaged_loss"] for each in figures]
    (array(0.625, dtype=float32), [0.25, 0.140625])

    Source: Polyak and Juditsky 1992; Izmailov and others 2018.
    """

    def __init__(
        self,
        decay: float | None = None,
        *,
        start: int = 0,
        dev: Sequence[Any] | None = None,
        keep: bool = True,
    ) -> None:
        if decay is not None and not (is_above(decay, 0) and decay < 1):
            raise TrainingError("AverageWeights decay", "a number between 0 and 1", repr(decay), "try 0.999")
        if not (is_int(start) and start >= 0):
            raise TrainingError("AverageWeights start", "0 epochs or more", repr(start), "it counts epochs")
        self.decay = decay
        self.start = start
        self.dev = dev
        self.keep = keep
        self.averages: dict[str, Array] = {}
        self._count = 0
        self._in_epoch = False

    def on_step_start(self, trainer: Trainer) -> None:
        """Note that an epoch is under way."""
        self._in_epoch = True

    def on_step_end(self, trainer: Trainer) -> None:
        """Take the parameters of a step into the moving average."""
        if self.decay is not None and trainer.epoch >= self.start:
            self._count += 1
            self._take(trainer, max(1 - self.decay, MEMORY / (self._count + MEMORY)))

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Take the parameters of an epoch into the mean, and evaluate."""
        self._in_epoch = False
        if self.decay is None and trainer.epoch > self.start:
            self._count += 1
            self._take(trainer, 1 / self._count)
        if self.dev is not None:
            with exchanged(trainer.program.params, self.averages):
                figures = trainer.evaluate(self.dev)
            trainer.figures.update({f"dev_averaged_{name}": value for name, value in figures.items()})

    def on_fit_end(self, trainer: Trainer) -> None:
        """Give the parameters their averages, if that is wanted."""
        if self.keep and self.averages and not self._in_epoch:
            assign(trainer.program.params, self.averages)

    def state(self) -> dict[str, Any]:
        """Return the averages, and how many epochs or steps are in them."""
        averages = {AVERAGE + name: np.array(array) for name, array in self.averages.items()}
        return {"count": self._count, **averages}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over, as copies, what `state` returned."""
        self._count = state["count"]
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
    """Move an average, in place, towards a target by a share of the way; both have one axis."""
    for first in range(0, len(average), BLOCK):
        part = average[first : first + BLOCK]
        way = target[first : first + BLOCK] - part
        way *= weight
        part += way


@contextmanager
def exchanged(params: Any, values: Mapping[str, Array]) -> Iterator[None]:
    """Give parameters other values for a while.

    >>> params = {"w": np.array(1.0)}
    >>> with exchanged(params, {"w": np.array(2.0)}):
    ...     params["w"]
    array(2.)
    >>> params["w"]
    array(1.)
    """
    before = {name: np.array(params[name]) for name in values}
    assign(params, values)
    try:
        yield
    finally:
        assign(params, before)
