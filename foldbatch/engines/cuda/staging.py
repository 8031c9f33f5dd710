"""The way of a batch to the device: one block of pinned memory, one copy on a stream of its own.

There are two blocks in turns. While the device works with one, the next batch is packed into the other and
copied; events keep a block from being written again too early.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.drivers.driver import DeviceBuffer, Event
from foldbatch.engines.cuda.memory import capacity
from foldbatch.params.parameters import Array

BLOCKS = 2
GRAIN = 256  # bytes


@dataclass(slots=True)
class StagedBlock:
    """Pinned memory of the host, and as much of the device.

    Attributes:
        host: ``[nbytes] uint8``.
        device: its copy.
        copied: when the copy is done.
        used: when the device needs it no more.
        busy: whether it was sent.
    """

    host: Array
    device: DeviceBuffer
    copied: Event
    used: Event
    busy: bool = False


@dataclass(slots=True)
class Staging:
    """Blocks in turns, grown when a batch needs more."""

    device: Device
    blocks: list[StagedBlock | None] = field(default_factory=lambda: [None] * BLOCKS)
    turn: int = 0

    def next(self, nbytes: int) -> StagedBlock:
        """Return a block that the host may write, of at least so many bytes."""
        driver = self.device.driver
        self.turn = (self.turn + 1) % BLOCKS
        block = self.blocks[self.turn]
        if block is not None and block.busy:
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

    def done(self, block: StagedBlock) -> None:
        """Tell that nothing that was enqueued later needs the block."""
        self.device.driver.record(block.used, self.device.stream)
