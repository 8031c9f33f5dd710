"""Trainer: epochs of batches through a program and an optimizer, watched by callbacks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from foldbatch.params import Gradient
from foldbatch.program import Program
from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.metrics import Metric, Tally
from foldbatch.train.optimizer import Optimizer
from foldbatch.train.samplers import Sampler, shuffled

EVALUATED = 256  # examples of a batch that is not trained on


@dataclass(slots=True)
class Batch:
    """The batch under way: its examples, their places in the training set, then loss and gradients.

    Attributes:
        indices: of the examples in the training set.
        examples: of the batch.
        loss: the sum over the batch, once it was run.
        gradients: of the sum, by parameter name.
    """

    indices: list[int]
    examples: list[Any]
    loss: float = 0.0
    gradients: dict[str, Gradient] = field(default_factory=dict)


class Trainer:
    """Fits a program's parameters to examples, evaluates them, and predicts.

    Args:
        program: whose parameters are trained.
        optimizer: what changes them; the loss of a batch is divided by its number of examples.
        batch: how many examples make a batch.
        sampler: makes the batches instead; see `foldbatch.train.samplers`.
        metrics: figures of the values that `Metric` blocks collect; see `foldbatch.train.metrics`.
        callbacks: what is called meanwhile, in this order.
        seed: from which epochs are shuffled.

    Attributes:
        epoch: how many epochs are done.
        steps: how many updates are done, in all epochs.
        figures: those of the last epoch: ``loss`` per example, ``seconds``, and ``dev_loss`` and
            ``dev_NAME`` for each metric.
        history: the figures of all epochs.
        stopped: why training stopped before its last epoch, or None.

    >>> import foldbatch as fb
    >>> w = fb.Parameter([], init=0.0, name="w")
    >>> error = fb.Record((fb.Scalar(), fb.Scalar())) >> fb.Function(lambda x, y: (w * x - y) ** 2)
    >>> trainer = Trainer(fb.compile(error >> fb.Loss()), fb.SGD(0.1), batch=2)
    >>> figures = trainer.fit([(1, 2), (2, 4), (3, 6)], epochs=20)
    >>> float(trainer.program.params["w"].round(3)), len(figures)
    (2.0, 20)
    """

    def __init__(
        self,
        program: Program,
        optimizer: Optimizer,
        *,
        batch: int = 32,
        sampler: Sampler | None = None,
        metrics: Sequence[Metric] = (),
        callbacks: Sequence[Callback] = (),
        seed: int = 0,
    ) -> None:
        self.program = program
        self.optimizer = optimizer
        self.metrics = list(metrics)
        self.callbacks = list(callbacks)
        self.epoch = 0
        self.steps = 0
        self.batch = Batch([], [])
        self.figures: dict[str, Any] = {}
        self.history: list[dict[str, Any]] = []
        self.stopped: str | None = None
        self._size = batch
        self._sampler = sampler
        self._seed = seed

    def fit(
        self, examples: Sequence[Any], dev: Sequence[Any] | None = None, *, epochs: int
    ) -> list[dict[str, Any]]:
        """Train until so many epochs are done, or a callback stops it; return the figures of all epochs.

        Args:
            examples: to train on.
            dev: to evaluate after each epoch.
            epochs: how many epochs are done in the end, with those of earlier calls.
        """
        sampler = shuffled(examples, self._size, self._seed) if self._sampler is None else self._sampler
        self.stopped = None
        self._call("on_fit_start")
        try:
            while self.epoch < epochs and self.stopped is None:
                self._run_epoch(examples, dev, sampler.epoch(self.epoch))
        finally:
            self._call("on_fit_end")
        return self.history

    def step(self, examples: Sequence[Any]) -> float:
        """Train on one batch; return the sum of its losses."""
        self.batch = Batch(list(range(len(examples))), list(examples))
        return self._step()

    def evaluate(self, examples: Sequence[Any]) -> dict[str, Any]:
        """Return the ``loss`` per example and each metric by its name."""
        tally = Tally(self.metrics)
        for first in range(0, len(examples), EVALUATED):
            part = examples[first : first + EVALUATED]
            tally.add(self.program.run(part, losses=True, metrics=bool(self.metrics)), len(part))
        return tally.figures()

    def predict(self, examples: Sequence[Any]) -> list[Any]:
        """Return the program's result for each example."""
        parts = (examples[i : i + EVALUATED] for i in range(0, len(examples), EVALUATED))
        return [result for part in parts for result in self.program.run(part)]

    def stop(self, reason: str) -> None:
        """Stop after the epoch under way; callbacks call it."""
        self.stopped = reason

    def _run_epoch(
        self, examples: Sequence[Any], dev: Sequence[Any] | None, batches: Sequence[list[int]]
    ) -> None:
        start, total = time.perf_counter(), 0.0
        self._call("on_epoch_start")
        for indices in batches:
            self.batch = Batch(indices, [examples[i] for i in indices])
            total += self._step()
        self.epoch += 1
        loss = float(total) / max(len(examples), 1)  # a GPU is waited for here
        self.figures = {"epoch": self.epoch, "loss": loss, "seconds": time.perf_counter() - start}
        if dev is not None:
            self.figures |= {f"dev_{name}": value for name, value in self.evaluate(dev).items()}
        self.history.append(self.figures)
        self._call("on_epoch_end")

    def _step(self) -> float:
        batch = self.batch
        self._call("on_step_start")
        batch.loss, batch.gradients = self.program.value_and_grad(batch.examples)
        self._call("on_gradients")
        scale = 1 / max(len(batch.examples), 1)
        self.optimizer.update(self.program.params, batch.gradients, scale=scale, loss=batch.loss)
        self.steps += 1
        self._call("on_step_end")
        return batch.loss

    def _call(self, moment: str) -> None:
        for callback in self.callbacks:
            getattr(callback, moment)(self)
