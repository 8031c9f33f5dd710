"""What `foldbatch.bench` returns: all figures as plain data, and as text for people."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from foldbatch.engines.report import CELLS, by_cost
from foldbatch.errors import counted
from foldbatch.system.showing import Printed, table

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


@dataclass(frozen=True, slots=True)
class Outcome(Printed):
    """What batching gains on a block and its examples; prints itself.

    Attributes:
        backend: that computed; `threads` is into how many parts a large batch may be cut.
        threads: see above.
        repeats: runs of each task.
        tasks: that were measured: `TRAIN` is loss, gradients and an update by Adam, `INFER` is results.
        batches: by size, from 1 on.
        advice: what to try for batches of the largest size, a sentence each.
    """

    backend: str
    threads: int
    repeats: int
    tasks: tuple[str, ...]
    batches: tuple[BatchFigures, ...]
    advice: tuple[str, ...]

    def gain(self, batch: BatchFigures, task: str, *, new: bool = False) -> float:
        """Return how many times as fast an example, known or `new`, is in such a batch as alone."""
        alone, there = [each.new[task] if new else each.known[task] for each in (self.batches[0], batch)]
        return alone.median / there.median

    def as_dict(self) -> dict[str, Any]:
        """Return all figures as plain data, those that follow from others too."""
        data = asdict(self)
        for batch, written in zip(self.batches, data["batches"], strict=True):
            written["gain"] = {task: self.gain(batch, task) for task in self.tasks}
            written["gain_of_new"] = {task: self.gain(batch, task, new=True) for task in self.tasks}
            written["examples_per_second"] = {task: batch.known[task].rate for task in self.tasks}
            written["seconds_a_call"] = {task: batch.seconds_a_call(task) for task in self.tasks}
        return data

    def to_json(self) -> str:
        """Return all figures as JSON."""
        return json.dumps(self.as_dict(), indent=1)

    def __str__(self) -> str:
        first, last = self.batches[0], self.batches[-1]
        examples, calls = counted(first.examples, "example"), counted(first.calls, "call")
        cells, runs = counted(len(first.cells), "cell"), counted(self.repeats, "run")
        ran = f"backend {self.backend}, up to {counted(self.threads, 'thread')}, medians of {runs}"
        parts = [
            f"{examples}, {calls} of {cells}; {ran}",
            *map(self._gains, self.tasks),
            self._phases(),
            _made_of(last),
        ]
        if self.advice:
            parts.append("\n".join(["What to try", *(f"- {sentence}" for sentence in self.advice)]))
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        sizes = ", ".join(str(batch.size) for batch in self.batches)
        return f"Outcome(batches of {sizes}, backend {self.backend}; print it to read it)"

    def _gains(self, task: str) -> str:
        title = f"What batching gains in {task}: examples a second, traced before (known) or in the run (new)"
        header = ("batch", "known", "gain", "slowest to quickest", "new", "gain", "us a call (known)")
        rows = []
        for batch in self.batches:
            known = batch.known[task]
            row = (
                f"{batch.size}",
                f"{known.rate:.0f}",
                f"{self.gain(batch, task):.1f}x",
                f"{1 / known.high:.0f} to {1 / known.low:.0f}",
                f"{batch.new[task].rate:.0f}",
                f"{self.gain(batch, task, new=True):.1f}x",
                f"{batch.seconds_a_call(task) * 1e6:.2f}",
            )
            rows.append(row)
        return table(header, rows, title=title)

    def _phases(self) -> str:
        task = TRAIN if TRAIN in self.tasks else INFER
        title = f"Where the time of {task} goes: microseconds a new example, and shares"
        header = ("batch", *self.batches[0].phases, "sum")
        rows = []
        for batch in self.batches:
            total = sum(batch.phases.values())
            parts = [f"{seconds * 1e6:.1f} {seconds / total:4.0%}" for seconds in batch.phases.values()]
            rows.append((f"{batch.size}", *parts, f"{total * 1e6:.1f}"))
        return table(header, rows, title=title)


def _made_of(batch: BatchFigures) -> str:
    title = f"What a batch of {batch.size} is made of"
    header = ("cell", "calls", "run", "steps", "rows a step", "rows gathered")
    rows = []
    costly = by_cost(batch.cells)
    for cell in costly[:CELLS]:
        counts = (cell.calls, cell.distinct, cell.steps, f"{cell.mean_rows:.1f}", cell.gathered_rows)
        rows.append((cell.name, *map(str, counts)))
    where = f"in all {batch.batches} batches" if batch.batches > 1 else "in all"
    steps = f"{batch.steps} steps {where}; no schedule can do with fewer than {batch.lower_bound}"
    rest = costly[CELLS:]
    if rest:
        calls, took = sum(cell.distinct for cell in rest), sum(cell.steps for cell in rest)
        left_out = f"{counted(len(rest), 'more cell')}: {counted(calls, 'call')} in {counted(took, 'step')}"
        steps = f"and {left_out}\n{steps}"
    return f"{table(header, rows, title=title)}\n{steps}"
