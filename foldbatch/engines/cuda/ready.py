"""A batch made ready for a device: the kernels of its phase, what is launched, what memory it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.batch import ScheduledBatch
from foldbatch.engines.bindings import Bound, Directions
from foldbatch.engines.cuda.captured import InClass
from foldbatch.engines.cuda.kernels import Kernel
from foldbatch.engines.cuda.packing import PackedBatch
from foldbatch.engines.cuda.steps import LaunchStep
from foldbatch.engines.cuda.walk import StepWalker
from foldbatch.engines.launch import Ints
from foldbatch.params.parameters import Parameter

EACH = ("gradient", "input", "metric", "feed")  # what a batch brings, at addresses that no launch is told


@dataclass(frozen=True, slots=True)
class PhaseKernels:
    """The kernels of one phase of a model.

    Attributes:
        bound: their routines.
        kernels: the kernels, by number.
        walker: runs them.
        constants: arrays of the model, on the device, by buffer.
    """

    bound: Bound
    kernels: Sequence[Kernel]
    walker: StepWalker
    constants: dict[int, Any]

    @property
    def fixed(self) -> NDArray[np.bool_]:
        """Whether each buffer is not brought anew by each batch: ``[buffers]``."""
        made = np.ones(len(self.bound.types), bool)
        made[[n for kind in EACH for _, n in self.bound.brought[kind]]] = False
        return made


class Flag(NamedTuple):
    """A gradient that a batch makes, and that is looked at: of which parameter, and in which buffer.

    It has `width` numbers, or with a plan so many for each of its targets; at most `room`.
    """

    parameter: Parameter
    buffer: int
    width: int
    plan: int
    room: int


@dataclass(frozen=True, slots=True)
class Ready:
    """A schedule made ready: for training or for inference.

    Attributes:
        phase: the kernels.
        batch: the schedule, with data.
        tables: what is launched; of a batch in a class, what is launched for all of its batches.
        packed: all whole numbers of it.
        steps: what is launched, forward and backward.
        placed: the batch in its class; None where it has none.
        looks: whether the host must look at ids that a cell computes.
        cleared: the buffers that begin as zeros, and their bytes.
        flagged: the gradients that are looked at.
        rows_of: by sum of rows, how many targets it has at most.
        heights: ``[buffers] int64``: how many rows each buffer must have, in both directions.
        fixed: ``[buffers] bool``: whether a buffer is not brought anew by each batch.
    """

    phase: PhaseKernels
    batch: ScheduledBatch
    tables: Directions
    packed: PackedBatch
    steps: tuple[Sequence[LaunchStep], Sequence[LaunchStep]]
    placed: InClass | None
    looks: bool
    cleared: tuple[tuple[int, int], ...]
    flagged: tuple[Flag, ...]
    rows_of: Mapping[tuple[int, int], int]
    heights: Ints
    fixed: NDArray[np.bool_]

    @property
    def ranks(self) -> Sequence[Ints] | None:
        """Per cell, where the calls of each rank are; None where they are at their ranks."""
        return None if self.placed is None else self.placed.placed.ranks

    @property
    def ranks_room(self) -> Sequence[int]:
        """Per cell, for how many ranks there is room."""
        if self.placed is not None:
            return self.placed.rooms.sizes
        return [len(table.order) for table in self.batch.schedule.cells]
