"""Communicator: what training needs of the library that connects its processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


class Communicator(Protocol):
    """The processes of a training, as one of them sees the others.

    Three methods suffice. `all_gather` is for what differs in size from rank to rank: losses, rows of
    embeddings, figures. `all_to_all` is one half of a sum of large gradients, of which each rank adds one
    slice; `all_gather` is the other half. `abort` is for an error after which the others would wait in vain.

    All ranks must call `all_gather` and `all_to_all` in the same order, from one thread at a time.

    Attributes:
        rank: the number of this process, from 0.
        size: how many processes there are.
    """

    rank: int
    size: int

    def all_gather(self, data: Bytes, sizes: Sequence[int] | None = None) -> list[Bytes]:
        """Return the bytes of all ranks, in the order of ranks.

        Args:
            data: ``[n] uint8``, of this rank.
            sizes: how many bytes each rank gives, where all ranks know them; else they are asked first.

        Raises:
            ProcessError: when another process has ended.
        """
        ...

    def all_to_all(self, data: Bytes, sizes: Sequence[int]) -> list[Bytes]:
        """Send one part to each rank; return the parts sent to this rank, in the order of their senders.

        Args:
            data: ``[sum(sizes)] uint8``: the parts, in the order of ranks.
            sizes: of the part for each rank; the same on all ranks.

        Raises:
            ProcessError: when another process has ended.
        """
        ...

    def abort(self, reason: str) -> NoReturn:
        """End this process, and let the others end too.

        Raises:
            ProcessError: with the reason, where the library cannot end processes at once.
        """
        ...
