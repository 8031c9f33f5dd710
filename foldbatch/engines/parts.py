"""Parts of a batch that have run: forward, and backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from foldbatch.engines.batch import Batch
from foldbatch.engines.engine import Run
from foldbatch.engines.planned import SubBatch
from foldbatch.engines.results import Losses, Results
from foldbatch.engines.visits import Visits
from foldbatch.params.parameters import Array, Gradient, Parameter

Seeds: TypeAlias = (
    "Sequence[Sequence[tuple[int, Array]]]"  # per example, numbers of its values with cotangents
)


@dataclass(frozen=True, slots=True)
class Derived:
    """The results of the backward pass of a part."""

    losses: Losses  # the part's losses
    gradients: dict[Parameter, Gradient]  # the gradients, by parameter
    visits: Visits  # the gradients of data, where the model's cells yield them
    size: int  # how many examples the part has
    results: Results | None = None  # its results and metrics, where they are asked for


@dataclass(frozen=True, slots=True)
class Begun:
    """A part that has run forward, for training; its backward pass may follow."""

    part: SubBatch
    batch: Batch  # it scheduled
    run: Run  # what ran it

    def batch_seeds(self, seeds: Seeds) -> list[list[tuple[int, Array]]]:
        """Return, for each example, its seeds with the numbers that its values have in the batch."""
        offsets = self.batch.merged.offsets.tolist()
        return [
            [(number + offset, g) for number, g in pairs]
            for offset, pairs in zip(offsets, seeds, strict=True)
        ]
