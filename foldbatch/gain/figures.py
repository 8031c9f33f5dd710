"""What was measured with batches of one size: plain data, and the figures that follow from it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

TRAIN, INFER = "training", "inference"


@dataclass(frozen=True, slots=True)
class Seconds:
    """Seconds for one example, of runs that took turns with all else that was measured.

    Attributes:
        median: of the runs; `low` and `high` are the quickest and the slowest.
    """

    median: float
    low: float
    high: float

    @property
    def rate(self) -> float:
        """Examples per second.

        >>> Seconds(0.25, 0.2, 0.5).rate
        4.0
        """
        return 1 / self.median


def seconds_of(runs: Sequence[float], examples: int) -> Seconds:
    """Return the seconds for one example of runs over that many.

    >>> seconds_of([3.0, 1.0, 8.0], 2)
    Seconds(median=1.5, low=0.5, high=4.0)
    """
    return Seconds(statistics.median(runs) / examples, min(runs) / examples, max(runs) / examples)


@dataclass(frozen=True, slots=True)
class CellFigures:
    """One cell in one batch: how its calls were grouped into steps.

    Attributes:
        name: of the cell.
        calls: that the examples make; `distinct` of them run, the others are identical to one of these.
        steps: groups of calls that run together.
        rows: calls of each step, in order.
        gathered_rows: rows that are copied because they do not lie side by side.
    """

    name: str
    calls: int
    distinct: int
    steps: int
    rows: tuple[int, ...]
    gathered_rows: int

    @property
    def mean_rows(self) -> float:
        """Calls in a step, on average; 0 without steps."""
        return self.distinct / self.steps if self.steps else 0.0


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """What was measured with batches of one size.

    Attributes:
        size: of a batch.
        batches: how many were run; together they hold `examples`.
        examples: the same ones for each size, but for what is left over.
        known: by task (`TRAIN`, `INFER`), seconds for one example whose trace is known, as of a `Tree` from
            the second epoch on, or of any example after `Program.prepare`.
        new: the same for examples that are traced in the run.
        phases: by phase of a training step (of inference, where that alone is measured), the median seconds
            for one example, never seen before. A batch is one part on one thread here, so phases can add up
            to more than a run takes.
        calls: of cells, in all batches; `steps` are groups of them, `lower_bound` the groups that no
            schedule can do without.
        kernel_calls: of compiled functions, forward and (in training) backward.
        cells: what the first batch is made of.
    """

    size: int
    batches: int
    examples: int
    known: dict[str, Seconds]
    new: dict[str, Seconds]
    phases: dict[str, float]
    calls: int
    steps: int
    lower_bound: int
    kernel_calls: int
    cells: tuple[CellFigures, ...]

    def seconds_a_call(self, task: str) -> float:
        """Return the seconds for one call of a cell, everything included; 0 where nothing is called."""
        return self.known[task].median * self.examples / self.calls if self.calls else 0.0
