"""The status of a batch: what it tells the host when it has run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from foldbatch.engines.cuda.common import FAULTS, STALLED
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.ranges import OutOfRangeError
from foldbatch.errors import BackendError
from foldbatch.params import Array

WORDS = 8  # before the losses


class Status:
    """What a batch tells when it has run: ids out of range, and the sums of losses.

    Args:
        device: where it runs.
        losses: how many losses there are.
        flags: how many gradients are looked at, where the batch does so.
        zeroed: whether it begins as zeros; else a kernel writes all of it.

    Attributes:
        word: ``[WORDS + losses + flags] int64`` on the device: whether an id was out of range; its call's
            rank; the id; what it should be below; the cell; the word of the device's faults; whether a
            barrier was given up. The sums of losses follow, as bits of doubles; then 1 for each gradient that
            is not finite.
        within: what errors are raised within, which may change them.
    """

    def __init__(self, device: Device, losses: int, flags: int = 0, *, zeroed: bool = True) -> None:
        made = device.zeros if zeroed else device.empty
        self.word = made((WORDS + losses + flags,), "int64")
        self.within: Callable[[], AbstractContextManager[None]] = nullcontext
        self._wait: Callable[[], Array] | None = None
        self._numbers: Array | None = None

    def send(self, *, noted: bool = False) -> None:
        """Copy it to the host when all is computed that was enqueued; the word of faults may be in it."""
        device = self.word.device
        if not noted:
            device.driver.copy(self.word.pointer + 8 * FAULTS, device.faults.word.pointer, 8, device.stream)
        self._wait = self.word.device.read_later(self.word)

    def look(self) -> Array:
        """Wait for the batch, refuse ids out of range, and return the sums of losses: ``[losses] float64``.

        Raises:
            BackendError: when a barrier of the persistent kernel was given up: its results are wrong.
            OutOfRangeError: with cell and rank.
            ParameterError: when an update before the batch was refused, see `foldbatch.engines.cuda.faults`.
        """
        numbers = self.words()
        if numbers[STALLED]:
            expected, found = (
                "all blocks of a kernel to run side by side",
                "one that did not come for two seconds",
            )
            raise BackendError("engine persistent", expected, found, "compile with engine='captured'")
        bad, rank, found, size, cell = numbers[:5].tolist()
        if bad:
            self.word.device.faults.forget()  # updates by gradients of this batch were refused
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
