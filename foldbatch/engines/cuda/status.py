"""The status of a batch: what it tells the host when it has run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from foldbatch.engines.cuda.common import FAULTS
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.ranges import OutOfRangeError
from foldbatch.params.parameters import Array

WORDS = 8  # before the losses


class Status:
    """What a batch tells when it has run: ids out of range, and the sums of losses.

    Args:
        device: where it runs.
        losses: how many losses there are.
        flags: how many gradients are looked at.
        ranks: per cell, where the calls of each rank are; None where they are at their ranks.

    Attributes:
        word: ``[WORDS + losses + flags] int64`` on the device, which the batch writes whole: whether an id
            was out of range; its call's rank; the id; what it should be below; the cell; the word of the
            device's faults. The sums of losses follow, as bits of doubles; then 1 for each gradient that is
            not finite.
        within: what errors are raised within, which may change them.
    """

    def __init__(
        self, device: Device, losses: int, flags: int = 0, ranks: Sequence[Array] | None = None
    ) -> None:
        self.word = device.empty((WORDS + losses + flags,), "int64")
        self.within: Callable[[], AbstractContextManager[None]] = nullcontext
        self._ranks = ranks
        self._wait: Callable[[], Array] | None = None
        self._numbers: Array | None = None

    def send(self) -> None:
        """Copy it to the host when all is computed that was enqueued."""
        self._wait = self.word.device.read_later(self.word)

    def look(self) -> Array:
        """Wait for the batch, refuse ids out of range, and return the sums of losses: ``[losses] float64``.

        Raises:
            OutOfRangeError: with cell and rank.
            ParameterError: when an update before the batch was refused, see `foldbatch.engines.cuda.faults`.
        """
        numbers = self.words()
        bad, rank, found, size, cell = numbers[:5].tolist()
        if bad:
            self.word.device.faults.forget()  # updates by gradients of this batch were refused
            if self._ranks is not None:
                rank = int(np.searchsorted(self._ranks[cell], rank))
            raise OutOfRangeError(rank, found, size, cell=cell)
        self.word.device.faults.look(int(numbers[FAULTS]))
        return numbers[WORDS:].view(np.float64)

    def words(self) -> Array:
        """Wait for the batch, and return all words: ``[WORDS + losses + flags] int64``."""
        if self._numbers is None:
            if self._wait is None:
                self.word.device.flush()
            assert self._wait is not None, "the batch has run"
            self._numbers, self._wait = self._wait(), None
        return self._numbers

    def check(self) -> None:
        """Wait for the batch, and raise its error if it is bad."""
        with self.within():
            self.look()

    def loss(self, number: int) -> float:
        """Return a summed loss."""
        with self.within():
            return float(self.look()[number])
