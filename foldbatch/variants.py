"""Variants: one block made ready several times, each with the losses and metrics that some runs ask for.

A variant is built when it is first used. All share the parameters; each has a model, kernels, buffers and
traces of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from foldbatch.blocks.lower import Lowered, lower
from foldbatch.engines.planned import Planned
from foldbatch.engines.runner import Options, Runner
from foldbatch.forks import start_in_each_process
from foldbatch.model.model import Model
from foldbatch.traced import Prepared, Traces
from foldbatch.trees.records import Records


@dataclass(frozen=True, slots=True)
class Variant:
    """A block made ready: its model and tracer, what runs the model, and the traces of examples."""

    lowered: Lowered
    runner: Runner
    traces: Traces


class Variants:
    """The variants of a program.

    Args:
        lowered: the block with all losses and metrics: so it trains. It is `full`.
        options: how to run.
        seed: the seed of random numbers.
    """

    def __init__(self, lowered: Lowered, options: Options, seed: int) -> None:
        self._options = options
        self._seed = seed
        start_in_each_process(self, Variants._start)
        self.full = self._ready(lowered)
        self._built = {asides_of(lowered.model): self.full}

    def _start(self) -> None:
        self._lock = threading.Lock()

    def for_run(self, examples: Iterable[Any] | Planned, asides: frozenset[str]) -> Variant:
        """Return the variant that runs examples.

        Examples that were prepared or planned were traced for the full one.

        Args:
            examples: the batch; not an iterator.
            asides: which of ``losses`` and ``metrics`` are asked for.
        """
        if isinstance(examples, Planned):
            return self.full
        kinds = set() if isinstance(examples, Records) else {*map(type, examples)}
        if any(issubclass(kind, Prepared) for kind in kinds):
            return self.full
        asides &= asides_of(self.full.lowered.model)
        with self._lock:
            if asides not in self._built:
                self._built[asides] = self._build(asides)
            return self._built[asides]

    def _build(self, asides: frozenset[str]) -> Variant:
        full = self.full.lowered
        tracer, kept_bytes = full.tracer, full.model.kept_bytes
        lowered = lower(full.block, tracer.policy, kept_bytes, tracer.max_calls, asides, tracer.arithmetic)
        assert {*lowered.model.parameters} <= {*full.model.parameters}, "the model is not that of the block"
        return self._ready(lowered)

    def _ready(self, lowered: Lowered) -> Variant:
        runner = Runner(lowered.model, self._options, self._seed)
        return Variant(lowered, runner, Traces(lowered, runner.plan))


def asides_of(model: Model) -> frozenset[str]:
    """Return which of ``losses`` and ``metrics`` a model has."""
    has = {"losses": any(model.losses), "metrics": any(model.metrics)}
    return frozenset(name for name, there in has.items() if there)
