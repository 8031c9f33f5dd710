"""What `foldbatch.bench` returns: all figures as plain data, and as text for people."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from foldbatch.engines.advice import by_cost
from foldbatch.engines.report_text import CELLS, table
from foldbatch.errors import counted
from foldbatch.gain.figures import INFER, TRAIN, BatchFigures


@dataclass(frozen=True, slots=True)
class Outcome:
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
        counted = f"{first.examples} examples, {first.calls} calls of {len(first.cells)} cells"
        ran = f"backend {self.backend}, up to {self.threads} threads, medians of {self.repeats} runs"
        parts = [f"{counted}; {ran}", *map(self._gains, self.tasks), self._phases(), _made_of(last)]
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
        return table(title, header, rows)

    def _phases(self) -> str:
        task = TRAIN if TRAIN in self.tasks else INFER
        title = f"Where the time of {task} goes: microseconds a new example, and shares"
        header = ("batch", *self.batches[0].phases, "sum")
        rows = []
        for batch in self.batches:
            total = sum(batch.phases.values())
            parts = [f"{seconds * 1e6:.1f} {seconds / total:4.0%}" for seconds in batch.phases.values()]
            rows.append((f"{batch.size}", *parts, f"{total * 1e6:.1f}"))
        return table(title, header, rows)


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
    return f"{table(title, header, rows)}\n{steps}"
