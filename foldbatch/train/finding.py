"""Finding a learning rate: a sweep over rates, on a program and an optimizer that stay as they were."""

import copy
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, count, islice

import numpy as np
from numpy.typing import NDArray

from foldbatch.communicators import together
from foldbatch.errors import NotFiniteWarning, ParameterError, TrainingError
from foldbatch.system.closed import Closed
from foldbatch.train import checks
from foldbatch.train.callbacks import ClipGradients
from foldbatch.train.numbers import number, whole_number
from foldbatch.train.optimizer import Optimizer
from foldbatch.train.parallel import Batch
from foldbatch.train.pieces import Examples
from foldbatch.train.resuming import assign
from foldbatch.train.trainer import Trainer
from foldbatch.views import plots
from foldbatch.views.plots import Plot

SMOOTHED = 10  # steps of a hundred that a running mean of losses remembers
LEAST = 5  # losses that a suggestion needs
FIRST = 10  # of steps, the part at the beginning that is neither suggested nor the least


class LRFinder(Closed):
    """Suggests a learning rate: trains with rates that rise, and looks at where the loss falls most.

    Each batch is trained on with a rate that is a fixed factor above the one before, with the trainer's
    sampler, batches of an update and `ClipGradients`; other callbacks are not called. Then parameters,
    optimizer and the program's random step are what they were before, to the bit, also after an error.

    Args:
        trainer: whose program and optimizer are tried; it has not to be fitted yet.
        lowest: the first rate.
        highest: the last one.
        steps: how many rates are tried.
        diverged: the sweep ends where the running mean of losses is so many times the least one, or a loss or
            a gradient is not finite.

    Attributes:
        rates: those that were tried.
        losses: the mean loss of a batch before it was trained on with each.
        smoothed: the same, smoothed from both sides.
        suggestion: the rate at which the smoothed loss falls most, for a factor of rates; None before `find`.

    Raises:
        TrainingError: when a setting is out of range; by `find`, when the loss falls nowhere, or there are no
            examples.

    >>> w = fb.Parameter([], init=0.0, name="w")
    >>> error = fb.Scalar() >> fb.Function(lambda x: (w - x) ** 2)
    >>> trainer = fb.train.Trainer(fb.compile(error >> fb.Loss()), fb.SGD(1.0), batch_size=2)
    >>> finder = LRFinder(trainer, lowest=1e-4, highest=10)
    >>> 0.001 < finder.find([1.0, 1.1]) < 0.5
    True
    >>> float(trainer.program.params["w"]), trainer.optimizer.lr
    (0.0, 1.0)

    Source: Smith 2017, Cyclical learning rates for training neural networks, section 3.3; rates rise
    exponentially, as in fastai.
    """

    def __init__(
        self,
        trainer: Trainer,
        *,
        lowest: float = 1e-7,
        highest: float = 10.0,
        steps: int = 100,
        diverged: float = 4.0,
    ) -> None:
        fix = "for example LRFinder(fb.train.Trainer(program, fb.Adam()))"
        self.trainer = checks.instance_of("LRFinder trainer", trainer, Trainer, "a trainer", fix)
        self.lowest = number("LRFinder lowest", lowest, 0, above=True, fix="1e-7 is usual")
        self.highest = number("LRFinder highest", highest, self.lowest, above=True, fix="10 is usual")
        self.steps = whole_number("LRFinder steps", steps, LEAST, "100 is usual")
        self.diverged = number("LRFinder diverged", diverged, 1, above=True, fix="4 is usual")
        self.rates: list[float] = []
        self.losses: list[float] = []
        self.smoothed: list[float] = []
        self.suggestion: float | None = None

    def find(self, examples: Examples) -> float:
        """Try the rates on examples, as `Trainer.fit` takes them; return the suggested one."""
        trainer = self.trainer
        with together(trainer.parallel.communicator):
            training = checks.fitting_examples(trainer.program, "examples", examples)
            batches_of = trainer._batches_of(training)
            self.rates, self.losses, self.smoothed, self.suggestion = [], [], [], None
            with _unchanged(trainer) as optimizer:
                batches = islice(chain.from_iterable(map(batches_of, count())), self.steps)
                self._sweep(optimizer, batches)
        return self._suggested()

    def plot(self) -> Plot:
        """Return the picture of losses by rate, with the suggested one.

        Raises:
            TrainingError: when no rate has been tried.
            BackendError: when matplotlib is not installed.
        """
        if not self.rates:
            raise TrainingError("LRFinder plot", "rates that were tried", "none", "call find(examples) first")
        return plots.sweep(self.rates, self.losses, self.smoothed, self.suggestion)

    def _repr_png_(self) -> bytes | None:
        return self.plot().content("png") if self.rates and plots.is_installed() else None

    def _sweep(self, optimizer: Optimizer, batches: Iterable[Batch]) -> None:
        """Train on batches with rates that rise, until the loss diverges; note rates and losses."""
        trainer, factor = self.trainer, (self.highest / self.lowest) ** (1 / (self.steps - 1))
        least = math.inf
        for place, batch in enumerate(batches):
            total, batch.gradients = trainer.parallel.sum_of(
                batch.examples, batch.indices, parts=trainer.accumulate
            )
            batch.loss = float(total)
            size = max(batch.size, 1)
            if not math.isfinite(batch.loss):
                return
            self.rates.append(min(self.lowest * factor**place, self.highest))
            self.losses.append(batch.loss / size)
            mean = float(self._running(self.losses)[-1])
            if place >= self.steps // FIRST:
                least = min(least, mean)
            if math.isfinite(least) and mean - least > (self.diverged - 1) * abs(least):
                return
            trainer.batch = batch
            for callback in trainer.callbacks:
                if isinstance(callback, ClipGradients):
                    callback.on_gradients(trainer)
            optimizer.lr = self.rates[-1]
            try:
                optimizer.update(trainer.program.params, batch.gradients, scale=1 / size, loss=batch.loss)
            except ParameterError:  # a gradient is not finite
                return

    def _suggested(self) -> float:
        """Smooth the losses; return the rate of their steepest fall."""
        losses = np.array(self.losses)
        # how far a loss that diverges has grown does not count
        capped = np.minimum(losses, losses[:LEAST].max(initial=-math.inf))
        self.smoothed = ((self._running(capped) + self._running(capped[::-1])[::-1]) / 2).tolist()
        first = self.steps // FIRST  # before it too little is smoothed
        falls = np.zeros(1)
        if len(losses) >= first + LEAST:
            least = first + int(np.argmin(self.smoothed[first:]))
            falls = -np.gradient(self.smoothed)[first : least + 1]
        if not falls.max() > 0:
            actual = f"none of {len(losses)} from {self.lowest:g} on"
            fix = (
                "begin with a lower rate: LRFinder(trainer, lowest=); look at plot(), and at the model's loss"
            )
            raise TrainingError("LRFinder", "rates at which the loss falls", actual, fix)
        self.suggestion = self.rates[first + int(np.argmax(falls))]
        return self.suggestion

    def _running(self, losses: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the running mean of losses, older ones weighted less by a factor a step: ``[n]``."""
        memory = max(1 - SMOOTHED / self.steps, 0.0)
        means, mean = [], 0.0
        for place, loss in enumerate(losses, 1):
            mean = memory * mean + (1 - memory) * float(loss)
            means.append(mean / (1 - memory**place))
        return np.array(means)


@contextmanager
def _unchanged(trainer: Trainer) -> Iterator[Optimizer]:
    """Yield a copy of a trainer's optimizer; then give the program its parameters and random step again."""
    program, batch = trainer.program, trainer.batch
    optimizer = copy.copy(trainer.optimizer)
    optimizer.load_state(trainer.optimizer.state())  # arrays of its own
    before = {name: np.array(array) for name, array in program.params.items()}
    step, drawn, warned = program.steps_drawn, program._drawn, {*program._warned._of}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotFiniteWarning)
            yield optimizer
    finally:
        assign(program.params, before)
        program.steps_drawn, program._drawn, program._warned._of = step, drawn, warned
        trainer.batch = batch
