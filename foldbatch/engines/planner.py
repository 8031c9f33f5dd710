"""Planning for an engine, without the engine: from the traces of a batch to its scheduled parts.

A process that has no kernels plans as one that has them, see `foldbatch.train.workers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from foldbatch.engines.batch import ScheduledBatch, SubBatch, schedule_batch
from foldbatch.engines.threads import split
from foldbatch.model.model import Model
from foldbatch.planning.layout import find_layout
from foldbatch.planning.policies import Costs, find_policy
from foldbatch.planning.sharing import find_share
from foldbatch.scheduler.schedule import verify
from foldbatch.scheduler.trace import Trace


class Ways(NamedTuple):
    """How batches are planned: what options and the engine say of it, as plain data."""

    policy: str  # the options of `foldbatch.compile`
    layout: str
    share: str | None
    threads: int
    debug: bool
    one_by_one: bool  # whether each example is a part of its own
    splits: int  # how many times the usual calls are worth a part; 0 where no batch is cut
    costs: Costs  # what the engine's steps cost, and planning them


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans batches of a model."""

    model: Model
    ways: Ways

    def plan(self, traces: list[Trace]) -> tuple[SubBatch, ...]:
        """Return a batch cut into parts, each scheduled."""
        return tuple([SubBatch(first, part, self.scheduled(part)) for first, part in self.cut(traces)])

    def cut(self, traces: list[Trace]) -> list[tuple[int, list[Trace]]]:
        """Cut a batch into parts that run side by side, or one after the other; see `threads.split`."""
        ways = self.ways
        if ways.one_by_one:
            return [(number, [trace]) for number, trace in enumerate(traces)]
        weights = [signature.weights for signature in self.model.signatures]
        threads = ways.threads if ways.splits else 1
        return split(traces, threads, weights, ways.splits) if traces else []

    def scheduled(self, traces: Sequence[Trace]) -> ScheduledBatch:
        """Return traces merged and scheduled, all in one part."""
        ways, model = self.ways, self.model
        batch = schedule_batch(
            traces,
            model.signatures,
            find_policy(ways.policy),
            find_layout(ways.layout),
            len(model.arenas),
            find_share(ways.share),
            ways.costs,
        )
        if ways.debug:
            verify(batch.schedule, tuple(cell.outputs for cell in model.signatures))
        return batch
