"""Shares: the batches of an epoch, each with what this process runs of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from foldbatch.engines.planned import Planned
from foldbatch.params import Gradient
from foldbatch.train.parallel import DataParallel
from foldbatch.train.prefetch import prefetched
from foldbatch.trees.records import chosen


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
    examples: Sequence[Any]
    loss: float = 0.0
    gradients: dict[str, Gradient] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Share:
    """What this process runs of a batch.

    Attributes:
        batch: the whole batch.
        places: the places of this process's examples in the batch; None where it runs them all.
        part: these examples, or their plan made ahead.
    """

    batch: Batch
    places: list[int] | None
    part: Sequence[Any] | Planned

    @property
    def indices(self) -> list[int]:
        """The places of this process's examples in the training set."""
        indices = self.batch.indices
        return indices if self.places is None else [indices[place] for place in self.places]


def share_of(parallel: DataParallel, batch: Batch) -> Share:
    """Return what this process runs of a batch."""
    places = None if parallel.is_alone else parallel.places(batch.examples)
    return Share(batch, places, batch.examples if places is None else chosen(batch.examples, places))


def shares(
    parallel: DataParallel, examples: Sequence[Any], batches: Sequence[list[int]], ahead: int
) -> Iterator[Share]:
    """Yield this process's share of each batch; with `ahead`, a thread plans so many shares ahead."""
    made = (share_of(parallel, Batch(indices, chosen(examples, indices))) for indices in batches)
    if not ahead:
        yield from made
        return
    waiting: deque[Share] = deque()  # whose plans are under way

    def parts() -> Iterator[Any]:  # read by the thread
        for share in made:
            waiting.append(share)
            yield share.part

    for plan in prefetched(parallel.program, parts(), ahead):
        yield replace(waiting.popleft(), part=plan)
