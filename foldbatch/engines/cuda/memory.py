"""Memory of the device that outlives a batch, and the way of a batch to it, in one copy on its own stream.

A buffer has a number, as in `foldbatch.engines.arrays`. Its height grows by classes, each at least an eighth
higher than the one before, so that a run settles after a few batches.

There are two blocks of pinned memory in turns. While the device works with one, the next batch is packed into
the other and copied; events keep a block from being written again too early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.driver import DeviceBuffer, Event
from foldbatch.engines.launch import Ints
from foldbatch.params.parameters import Array
from foldbatch.types import TensorType

STEPS = 8  # classes from a power of two to the next
NAN = 255  # a byte: floats of such bytes are NaN


def capacity(rows: int) -> int:
    """Return the least capacity class that holds so many rows.

    >>> [capacity(rows) for rows in (0, 5, 17, 1000, 1025)]
    [1, 5, 18, 1024, 1152]
    """
    step = max(1, (1 << max(0, rows - 1).bit_length()) // (2 * STEPS))
    return max(1, -(-rows // step) * step)


class DeviceMemory:
    """Buffers by number; one memory serves one batch at a time."""

    def __init__(self, device: Device, types: Sequence[TensorType | None], *, poisoned: bool = False) -> None:
        self._device = device
        self._types = types  # of the buffers; None for those that a batch brings
        self._poisoned = poisoned  # whether buffers of floats are filled with NaN before each batch
        self._owned = np.array([type_ is not None for type_ in types], bool)
        self._capacity = np.zeros(len(types), np.int64)
        self._fitted: Ints | None = None  # the heights of the batch before
        self.limit: int | None = (
            None  # bytes of all buffers, where it may not grow ahead of what a batch needs
        )
        self.sources: list[DeviceBuffer | Any] = [None] * len(types)  # what holds the memory of each
        self.addresses = np.zeros(len(types), np.int64)  # ``[buffers]``: where each begins

    def fit(self, heights: Ints) -> None:
        """Allocate larger buffers on the device where a batch needs more rows: ``heights: [buffers]``.

        The contents of a buffer that grows are lost. With `debug`, buffers of floats are filled with NaN.
        """
        driver = self._device.driver
        if heights is self._fitted and self.limit is None and not self._poisoned:
            return  # as batches of one class, or one that comes again
        wanted, self._fitted = np.maximum(heights, 1), None
        if self.limit is not None:
            self._shrink(wanted, self.limit)
        for number in np.flatnonzero(self._owned & (wanted > self._capacity)).tolist():
            type_ = self._types[number]
            assert type_ is not None
            rows = capacity(int(wanted[number])) if self.limit is None else int(wanted[number])
            self._capacity[number] = 0  # until it is there: memory may be short
            self.sources[number] = None  # before the new one is there: together they may be too much
            self.bring(number, self._device.allocate(rows * type_.nbytes))
            self._capacity[number] = rows
        self._fitted = heights
        if self._poisoned:
            for number in np.flatnonzero(self._owned).tolist():
                type_ = self._types[number]
                if type_ is not None and type_.is_float:
                    nbytes = int(self._capacity[number]) * type_.nbytes
                    driver.fill(int(self.addresses[number]), NAN, nbytes, self._device.stream)

    def _shrink(self, wanted: Ints, limit: int) -> None:
        """Free buffers of another height than a batch needs, if all would take more bytes than the limit."""
        owned = [(n, type_) for n, type_ in enumerate(self._types) if type_ is not None]
        if sum(max(int(wanted[n]), int(self._capacity[n])) * type_.nbytes for n, type_ in owned) <= limit:
            return
        for number, _ in owned:
            if self._capacity[number] != wanted[number]:
                self._capacity[number], self.sources[number] = 0, None

    def bring(self, number: int, memory: Any, offset: int = 0) -> None:
        """Let memory that a batch brings be a buffer, from a byte on; `held` has a `pointer`."""
        self.sources[number], self.addresses[number] = memory, memory.pointer + offset


STAGED_BLOCKS = 2
GRAIN = 256  # bytes


@dataclass(slots=True)
class StagedBlock:
    """Pinned memory of the host, and as much of the device."""

    host: Array  # ``[nbytes] uint8``
    device: DeviceBuffer  # its copy
    copied: Event  # when the copy is done
    used: Event  # when the device needs it no more
    busy: bool = False  # whether it was sent


@dataclass(slots=True)
class Staging:
    """Blocks in turns, grown when a batch needs more."""

    device: Device
    blocks: list[StagedBlock | None] = field(default_factory=lambda: [None] * STAGED_BLOCKS)
    turn: int = 0

    def next(self, nbytes: int) -> StagedBlock:
        """Return a block of pinned memory, of at least `nbytes`, for numbers to be copied to the device.

        Blocks take turns: it waits until the device has read the last content of this one.
        """
        driver = self.device.driver
        self.turn = (self.turn + 1) % STAGED_BLOCKS
        block = self.blocks[self.turn]
        if block is not None and block.busy and not driver.completed(block.copied):
            driver.synchronize(block.copied)
        if block is None or block.device.nbytes < nbytes:
            if block is not None and block.busy:
                driver.synchronize(block.used)
            size = capacity(-(-nbytes // GRAIN)) * GRAIN
            used = block.used if block else driver.event()
            # the memory before is kept until its own event: that must not be recorded anew
            block = StagedBlock(driver.pinned(size), self.device.allocate(size), driver.event(), used)
            self.blocks[self.turn] = block
            driver.record(used, self.device.stream)  # who had the memory before may still compute with it
        return block

    def send(self, block: StagedBlock, nbytes: int) -> None:
        """Copy the first bytes of a block to the device; what is computed from now on waits for that."""
        driver, copies = self.device.driver, self.device.copies
        driver.wait(copies, block.used)
        driver.copy_in(block.device.pointer, block.host[:nbytes], copies)
        driver.record(block.copied, copies)
        driver.wait(self.device.stream, block.copied)
        self.device.keep(block.copied, block.host)
        block.busy = True

    def release(self, block: StagedBlock) -> None:
        self.device.driver.record(block.used, self.device.stream)
