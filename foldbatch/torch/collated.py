"""Planned batches that cross a DataLoader's queue: one tensor, which PyTorch puts into shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from foldbatch.engines.batch import Planned, fingerprint
from foldbatch.engines.carried import CarriedPlan, Header, carried
from foldbatch.system.shared import Place, put, room_for, views


class CollatedPlan(CarriedPlan):
    """A planned batch in one tensor. What moves batches to a device, as Lightning does, may call `to`.

    Args:
        headers: of its parts.
        places: where its arrays lie in the tensor.
        memory: the tensor, ``[bytes] uint8``.
        owner: the fingerprint of the program that it is for.
    """

    def __init__(
        self, headers: Sequence[Header], places: Sequence[Place], memory: torch.Tensor, owner: str
    ) -> None:
        super().__init__(headers, views(memory.numpy(), places), owner)
        object.__setattr__(self, "_sent", (headers, places, memory, owner))

    _sent: tuple[Sequence[Header], Sequence[Place], torch.Tensor, str]

    def to(self, *args: Any, **kwargs: Any) -> CollatedPlan:
        """Return the batch itself: it holds no tensors of examples."""
        return self

    def __reduce__(self) -> tuple[type[CarriedPlan], tuple[object, ...]]:
        return CollatedPlan, self._sent


def collated(planned: Planned) -> CollatedPlan:
    """Return a planned batch in one tensor."""
    headers, arrays = carried(planned.parts)
    memory = torch.empty(room_for(arrays), dtype=torch.uint8)
    return CollatedPlan(headers, put(memory.numpy(), arrays), memory, fingerprint(planned.owner))
