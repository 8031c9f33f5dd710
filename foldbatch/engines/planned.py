"""Planned batches: cut into parts, each scheduled; all that running takes besides parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from foldbatch.engines.batch import ScheduledBatch
from foldbatch.scheduler.trace import Trace


@dataclass(frozen=True, slots=True)
class SubBatch:
    """What one thread runs."""

    first: int  # the number of its first example in the whole batch
    traces: Sequence[Trace]  # its examples
    batch: ScheduledBatch | None = None  # they scheduled, or None where that is done when the part runs
    # for training and for inference, what the engine has made ready of the batch
    ready: dict[bool, Any] = field(default_factory=dict, compare=False, repr=False)

    def __reduce__(self) -> tuple[type[SubBatch], tuple[object, ...]]:
        # what is ready belongs to the kernels of one process
        return SubBatch, (self.first, self.traces, self.batch)


def fingerprint(owner: Any) -> str:
    """Return what stands for the owner of pickled work: equal for programs that work alike."""
    return owner if isinstance(owner, str) else owner.fingerprint


def belongs(owner: object, ready: Any) -> bool:
    """Return whether work is for a model made ready: made for it, or pickled by one that works alike."""
    return owner is ready or (isinstance(owner, str) and owner == ready.fingerprint)


@dataclass(frozen=True, slots=True, repr=False)
class Planned:
    """A batch made ready by `foldbatch.Program.plan`, to be run any number of times.

    It holds integers and the examples' data, but no parameters. Its length is the number of examples.
    Pickled, it can be run in another process by a program of the same block, compiled with the same options.
    """

    parts: tuple[SubBatch, ...]  # in the order of the batch
    owner: object  # the model made ready that it is for, or its fingerprint where it was pickled

    @property
    def traces(self) -> list[Trace]:
        """The traces of all examples, in order."""
        return [trace for part in self.parts for trace in part.traces]

    def __reduce__(self) -> tuple[type[Planned], tuple[object, ...]]:
        return Planned, (self.parts, fingerprint(self.owner))

    def __len__(self) -> int:
        return sum(len(part.traces) for part in self.parts)

    def __repr__(self) -> str:
        return f"Planned({len(self)} examples in {len(self.parts)} parts)"
