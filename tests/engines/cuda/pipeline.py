"""A small program on a driver, with two streams and a pair of staging blocks; each of its precautions can be left out."""

from collections.abc import Collection

import numpy as np

from foldbatch.engines.cuda.driver import Driver

PRECAUTIONS = ("computing waits", "copying waits", "packing waits", "reading waits")
TEXT = """
KERNEL summed(i8 table, i8 count, i8 total, i8 place) {
  const i8* numbers = (const i8*)table;
  for (i8 at = BLOCK * LANES_X + LANE_X; at < count; at += BLOCKS * LANES_X)
    ((i8*)total)[place * count + at] = ((i8*)total)[at] += numbers[at];
}
"""
COUNT, ROUNDS = 4, 6


def run(driver: Driver, forgotten: Collection[str] = ()) -> list[list[int]]:
    """Add numbers up on the device, ever more, and return the sums after each round: those of 1, 1 + 2, 1 + 2 + 3, ...

    Args:
        driver: does it.
        forgotten: precautions that are left out.
    """
    computing, copying = driver.stream(), driver.stream()
    summed = driver.load(TEXT)("summed")
    total = driver.allocate(8 * COUNT * (ROUNDS + 1))
    driver.fill(total.pointer, 0, 8 * COUNT, computing)
    blocks = [
        (driver.pinned(8 * COUNT), driver.allocate(8 * COUNT), driver.event(), driver.event())
        for _ in range(2)
    ]
    for turn in range(1, ROUNDS + 1):
        host, table, copied, used = blocks[turn % 2]
        if turn > 2 and "packing waits" not in forgotten:
            driver.synchronize(copied)
        host.view(np.int64)[:] = turn
        if turn > 2 and "copying waits" not in forgotten:
            driver.wait(copying, used)
        driver.copy_in(table.pointer, host, copying)
        driver.record(copied, copying)
        if "computing waits" not in forgotten:
            driver.wait(computing, copied)
        arguments = [table.pointer, COUNT, total.pointer, turn]
        driver.launch(summed, 2, (2, 1), arguments, computing)
        driver.record(used, computing)
    result, done = driver.pinned(8 * COUNT * ROUNDS), driver.event()
    driver.copy_out(result, total.pointer + 8 * COUNT, computing)
    driver.record(done, computing)
    if "reading waits" not in forgotten:
        driver.synchronize(done)
    sums = result.view(np.int64).reshape(ROUNDS, COUNT).copy()
    driver.synchronize(done)
    return sums.tolist()


SUMS = [[turn * (turn + 1) // 2] * COUNT for turn in range(1, ROUNDS + 1)]
