"""Held batches: forward now, backward when the cotangents of results are there, or never.

A batch that is held keeps the memory that it ran in, so many can wait for their backward passes. Memory goes
back to a pool when a batch has run backward or nobody holds it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from foldbatch.engines.engine import Cotangents
from foldbatch.engines.parts import ForwardPart, sum_losses
from foldbatch.engines.runner import Feed, Runner, Work
from foldbatch.engines.visits import DataGradients
from foldbatch.model.decoding import map_tensors, numbers_in
from foldbatch.model.dual import FeedTangents
from foldbatch.params.gradients import BatchGradients
from foldbatch.params.parameters import Array, Gradient, Parameter
from foldbatch.system.processes import start_in_each_process


@dataclass(frozen=True, slots=True)
class Gradients:
    """The gradients that the backward pass of a held batch yields."""

    parameters: BatchGradients[Parameter]
    visits: list[DataGradients]  # per part of the batch, of data, where the runner's cells yield them
    firsts: list[int]  # the number of the first example of each part

    def of_data(self, cell: int, feed: int) -> Array | None:
        """Return the gradients of a cell's data over all parts: ``[n, *shape]``, in the order of calls.

        None where no gradient can reach the data.
        """
        arrays = [part.gradients[cell, feed] for part in self.visits if (cell, feed) in part.gradients]
        return (arrays[0] if len(arrays) == 1 else np.concatenate(arrays)) if arrays else None


class Pool:
    """Memory of batches that nobody holds any more, for one runner."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        start_in_each_process(self, Pool._start)

    def _start(self) -> None:
        self._free: list[list[object]] = []

    def hold(
        self,
        batch: Work,
        step: int,
        *,
        results: bool = False,
        training: bool = True,
        tangents: FeedTangents | None = None,
        feed: Feed | None = None,
    ) -> WaitingBatch:
        """Run a batch forward, and hold it; without training, there is no backward pass.

        `results` says whether results will have cotangents; the step draws random numbers; a dual model
        whose data move needs their tangents. For `feed` see `Runner.forward`.
        """
        try:
            memories = self._free.pop()
        except IndexError:
            memories = []
        parts = self.runner.forward(
            batch, step, memories, seeded_results=results, training=training, tangents=tangents, feed=feed
        )
        again = partial(self.hold, batch, step, results=results, tangents=tangents, feed=feed)
        return WaitingBatch(self, parts, again, memories)

    def take_back(self, memories: list[object]) -> None:
        self._free.append(memories)


class WaitingBatch:
    """A batch that has run forward, and may wait for its backward pass."""

    def __init__(
        self,
        pool: Pool,  # where its memory goes
        parts: Sequence[ForwardPart],
        again: Callable[[], WaitingBatch],  # runs it forward again: a backward pass spoils what that left
        memories: list[object],  # those of the parts
    ) -> None:
        self.pool, self.parts, self.again = pool, parts, again
        self.memories: list[object] | None = memories  # None when they have been given back

    @cached_property
    def numbers(self) -> list[list[int]]:
        """For each part, the numbers of the tensors of its results in the batch, in their order."""
        type_, batches = self.pool.runner.model.result, [part.batch for part in self.parts]
        return [numbers_in(type_, b.results, b.merged.offsets.tolist()) for b in batches]

    @cached_property
    def loss(self) -> float:
        return sum((sum_losses(self.pool.runner.model, part.run).total for part in self.parts), 0.0)

    @cached_property
    def values(self) -> list[Array]:
        """The tensors of all results, example by example, in the order in which a result holds them.

        They are to be asked for before the backward pass.
        """
        assert self.memories is not None, "values are fetched while the batch has its memory"
        parts = zip(self.parts, self.numbers, strict=True)
        return [value for part, numbers in parts if numbers for value in part.run.fetch(numbers)]

    def lengths(self) -> list[int]:
        """Return how many elements each example's result has, where results are sequences."""
        return [len(next(iter(terminals))) for part in self.parts for terminals in part.batch.results]  # type: ignore[call-overload]

    def results(self, tensors: Sequence[object]) -> list[object]:
        """Return each example's result, made of other tensors that stand for `values`."""
        replacements = iter(tensors)
        return [
            map_tensors(self.pool.runner.model.result, iter(terminals), lambda _: next(replacements))  # type: ignore[call-overload]
            for part in self.parts
            for terminals in part.batch.results
        ]

    def backward(self, cotangents: Sequence[Array | None], *, visited: bool = False) -> Gradients:
        """Return the gradients; the batch is run forward again where it has run backward before.

        There is a cotangent or None for each of `values`, and nothing where losses alone have gradients.
        `visited` asks for gradients of data.
        """
        memories, self.memories = self.memories, None  # whatever interrupts this: it is spoiled from here on
        if memories is None:
            return self.again().backward(cotangents, visited=visited)
        gradients_of_values, seeds = iter(cotangents), list[Cotangents]()
        for numbers in self.numbers if cotangents else [()] * len(self.parts):
            seeds.append([(number, g) for number in numbers if (g := next(gradients_of_values)) is not None])
        visits, gradients = self.pool.runner.backward(self.parts, seeds, visited=visited)
        self.pool.take_back(memories)
        return Gradients(gradients, visits, [part.part.first for part in self.parts])

    def pulled(self, pull: Callable[[Any], dict[Parameter, Gradient]]) -> BatchGradients[Parameter]:
        """Return the gradients of parameters of a batch of one part, by a function of its run.

        As `backward`: the batch is run forward again where it has run backward before.
        """
        memories, self.memories = self.memories, None
        if memories is None:
            return self.again().pulled(pull)
        gradients = self.pool.runner.pulled(self.parts[0], pull)
        self.pool.take_back(memories)
        return gradients

    def release(self) -> None:
        """Give the memory back; the values stay."""
        if self.memories is not None:
            memories, self.memories = self.memories, None
            self.pool.take_back(memories)

    def __del__(self) -> None:
        if getattr(self, "memories", None) is not None:
            self.release()
