"""Learning how large batches of a data set are, ahead of training, so that a GPU runs each by one launch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from foldbatch.blocks.values import refuse_no_count
from foldbatch.engines.engine import Engine
from foldbatch.engines.planned import Planned
from foldbatch.engines.report import Captures
from foldbatch.engines.runner import Runner
from foldbatch.scheduler.trace import Trace


@runtime_checkable
class Learning(Protocol):
    """What runs batches by graphs, whose capacities it learns from batches that it has seen."""

    def learn(self) -> None:
        """Learn capacities from the batches that were made ready."""
        ...

    def captures(self) -> Captures:
        """Return what was learned, and how many batches fitted."""
        ...


def learning(engine: Engine) -> Mapping[bool, Learning]:
    """Return what learns capacities, for training and for inference; nothing of most engines."""
    launcher = getattr(engine, "launcher", None)
    if launcher is None:
        return {}
    both = {training: launcher(training=training) for training in (True, False)}
    return {training: each for training, each in both.items() if isinstance(each, Learning)}


def captures(engine: Engine) -> Captures | None:
    """Return what training batches an engine has run by captured graphs; None where it has no graphs."""
    launcher = learning(engine).get(True)
    return None if launcher is None else launcher.captures()


class Capturing:
    """A program whose batches may be run by captured graphs."""

    _runner: Runner

    def _trace_all(self, examples: Iterable[Any] | Planned) -> list[Trace]:
        raise NotImplementedError

    def fit_capacities(
        self, examples: Iterable[Any], batch_size: int = 64, batches: int = 32
    ) -> Captures | None:
        """Learn from a data set how large batches are, so that a GPU runs each of them by one launch.

        A GPU runs a batch by one launch where it fits into a graph that was captured before: a sequence of
        kernels, each with a capacity. Here capacities are learned from random batches of the data. Without
        this call they are learned from the first batches that are trained. Nothing is launched, and
        parameters are not changed.

        Args:
            examples: the data set, or enough of it.
            batch_size: examples of a batch, as it will be trained.
            batches: how many random batches are looked at.

        Returns:
            What was learned, as `describe` shows it. None where each kernel is launched by itself, as it is
            on the CPU; then examples are not looked at.

        Raises:
            ExampleError: when an example does not fit the block.
            BlockValueError: when a number is not 1 or more.

        >>> import foldbatch as fb
        >>> program = fb.compile(fb.Map(fb.Scalar()) >> fb.Sum() >> fb.Loss(), "numpy")
        >>> program.fit_capacities([[1, 2], [3]], batch_size=2) is None
        True
        """
        refuse_no_count("batch_size", batch_size, 1)
        refuse_no_count("batches", batches, 1)
        runner = self._runner
        learners = learning(runner.engine)
        if not learners:
            return None
        traces = self._trace_all(examples)
        draw = np.random.default_rng(0)  # the same batches each time
        for _ in range(batches if traces else 0):
            chosen = draw.permutation(len(traces))[:batch_size].tolist()
            batch = runner.scheduled([traces[number] for number in chosen])
            for training in learners:
                runner.engine.ready(batch, training=training)
        for learner in learners.values():
            learner.learn()
        return captures(runner.engine)
