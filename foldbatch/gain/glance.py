"""What batching gains in training at a glance: two ratios, measured in a few seconds, in one line."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from foldbatch.gain.figures import TRAIN
from foldbatch.gain.measure import Batches, traced_before, unchanged, unseen
from foldbatch.program import Program

ALONE = 16  # so many examples of a batch are run one by one
TURNS = 7  # timed turns, as far as they fit into
SECONDS = 2.0  # of measuring; one turn is taken even if it takes longer


@dataclass(frozen=True, slots=True)
class Glance:
    """How many times as many examples a second train in a batch as one by one.

    Attributes:
        size: of the batch.
        known: the ratio where examples were traced before, as from the second epoch on.
        new: the ratio where they are traced in the step, as in the first epoch.

    >>> print(Glance(64, 9.31, 6.1))
    batching: 9.3x as many examples a second as one by one (new examples: 6.1x), in training steps of 64
    """

    size: int
    known: float
    new: float

    def __str__(self) -> str:
        gains = f"{self.known:.1f}x as many examples a second as one by one (new examples: {self.new:.1f}x)"
        return f"batching: {gains}, in training steps of {self.size}"


def glance(program: Program, examples: Sequence[Any], size: int) -> Glance | None:
    """Measure what batching gains in training; None for a program or a batch that does not batch.

    The batch is drawn from the examples, evenly spaced; some of its examples, from small to large, run one by
    one. Both take turns, with examples traced before and with new ones, and medians count. Parameters are
    afterwards what they were.

    Args:
        program: with losses.
        examples: of which one batch is measured.
        size: of the batch; if there are fewer examples, it is their number.

    Raises:
        ExampleError: when an example does not fit the block.
    """
    size = min(size, len(examples))
    if size < 2 or program.options.backend == "reference" or not program.options.batched:
        return None
    batch = [examples[i * len(examples) // size] for i in range(size)]
    by_size = sorted(range(size), key=[example.trace.size for example in program.prepare(batch)].__getitem__)
    few = min(ALONE, size)
    chosen = [by_size[(2 * i + 1) * size // (2 * few)] for i in range(few)]  # the middles of equal parts
    known = traced_before(program, batch)
    sides = (
        Batches(program, 1, [[batch[i]] for i in chosen], [[known[i]] for i in chosen], [TRAIN]),
        Batches(program, size, [batch], [known], [TRAIN]),
    )
    with unchanged(program):
        alone, together = _in_turn(sides)
    return Glance(size, *(a / few / (b / size) for a, b in zip(alone, together, strict=True)))


def _in_turn(sides: Sequence[Batches]) -> list[tuple[float, float]]:
    """Return, for each side, the median seconds with known and with new examples; the first turn warms up."""
    runs: list[list[tuple[float, float]]] = []
    begun = time.perf_counter()
    while len(runs) < 2 or (len(runs) <= TURNS and time.perf_counter() - begun < SECONDS):
        runs.append([(side.train(side.known), side.train(unseen(side.new))) for side in sides])
    return [
        (median(run[k][0] for run in runs[1:]), median(run[k][1] for run in runs[1:]))
        for k in range(len(sides))
    ]
