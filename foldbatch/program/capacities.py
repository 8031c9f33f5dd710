"""Capacities: how large batches are, learned from data for an engine that runs a batch by one launch."""

from collections.abc import Sequence

import numpy as np

from foldbatch.engines.engine import Capturing, Engine
from foldbatch.engines.report import Captures
from foldbatch.engines.runner import Runner
from foldbatch.scheduler.trace import Trace


def learned(runner: Runner, traces: Sequence[Trace], batch_size: int, batches: int) -> Captures | None:
    """Let an engine learn from random batches of traces; return what it knows, or None."""
    engine = runner.engine
    learners = _learners(engine)
    draw = np.random.default_rng(0)  # the same batches each time
    for _ in range(batches if learners and traces else 0):
        chosen = draw.permutation(len(traces))[:batch_size].tolist()
        batch = runner.scheduled([traces[number] for number in chosen])
        for training in learners:
            engine.ready(batch, training=training)
    for learner in learners.values():
        learner.learn()
    return captures(engine)


def captures(engine: Engine) -> Captures | None:
    """Return what an engine knows of capacities; None where each kernel is launched by itself."""
    launcher = engine.launcher(training=True)
    return None if launcher is None else launcher.captures()


def _learners(engine: Engine) -> dict[bool, Capturing]:
    launchers = {training: engine.launcher(training=training) for training in (True, False)}
    return {training: launcher for training, launcher in launchers.items() if launcher is not None}
