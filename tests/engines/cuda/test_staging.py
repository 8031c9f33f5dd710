"""Two blocks in turns: one is written while the device reads the other, and none too early."""

from __future__ import annotations

from typing import Any

import numpy as np

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.emulator import Emulator
from foldbatch.engines.cuda.staging import BLOCKS, GRAIN, Staging


class Written(Emulator):
    """An emulator that writes down what it is asked of events."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any, Any]] = []
        self.made = 0

    def stream(self) -> int:
        self.made += 1
        return self.made

    event = stream

    def record(self, event: Any, stream: Any) -> None:
        self.asked.append(("record", event, stream))

    def wait(self, stream: Any, event: Any) -> None:
        self.asked.append(("wait", event, stream))

    def synchronize(self, event: Any) -> None:
        self.asked.append(("synchronize", event, None))


def batch(staging: Staging, number: int, nbytes: int = 1000) -> Any:
    block = staging.next(nbytes)
    block.host[:nbytes] = number
    staging.send(block, nbytes)
    staging.done(block)
    return block


def test_blocks_take_turns_and_are_kept() -> None:
    staging = Staging(Device(Emulator()))
    blocks = [batch(staging, i) for i in range(5)]
    assert [block is blocks[i % BLOCKS] for i, block in enumerate(blocks)] == [True] * 5
    assert blocks[0] is not blocks[1]
    assert blocks[0].device.nbytes % GRAIN == 0
    device = staging.device
    copied = device.driver.array(blocks[0].device, (1000,), "uint8")
    assert (copied == 4).all()


def test_a_block_is_written_when_its_copy_is_done_and_copied_to_when_nobody_reads_it() -> None:
    driver = Written()
    staging = Staging(Device(driver))
    stream, copies = staging.device.stream, staging.device.copies
    for i in range(2):
        batch(staging, i)
    assert not any(what == "synchronize" for what, _, _ in driver.asked)
    driver.asked.clear()
    block = batch(staging, 2)
    assert driver.asked == [
        ("synchronize", block.copied, None),
        ("wait", block.used, copies),
        ("record", block.copied, copies),
        ("wait", block.copied, stream),
        ("record", block.used, stream),
    ]


def test_a_block_that_grows_waits_until_nobody_needs_the_old_one() -> None:
    driver = Written()
    staging = Staging(Device(driver))
    for i in range(2):
        batch(staging, i)
    old = staging.blocks[1]
    driver.asked.clear()
    block = batch(staging, 2, 100_000)
    assert old is not None
    assert driver.asked[:2] == [("synchronize", old.copied, None), ("synchronize", old.used, None)]
    assert block is not old
    assert (block.copied, block.used) == (old.copied, old.used)
    assert block.device.nbytes >= 100_000
    assert ("wait", block.used, staging.device.copies) not in driver.asked
    assert np.asarray(block.host[:100_000] == 2).all()
