"""A small program on a driver that replays a graph: a launch, and a product of what it leaves."""

from typing import Any

import numpy as np

from foldbatch.engines.cuda.driver import Driver, MatrixProduct

TEXT = """
KERNEL grown(i8 table, i8 a) {
  for (i8 at = BLOCK * LANES_X + LANE_X; at < 6; at += BLOCKS * LANES_X) ((f8*)a)[at] += ((const i8*)table)[0];
}
"""
ROUNDS = 3
A, B = np.arange(6.0).reshape(2, 3), np.arange(6.0, 12).reshape(3, 2)
EXPECTED = [((A + turn * (turn + 1) // 2) @ B).tolist() for turn in range(1, ROUNDS + 1)]


def product(a: Any, b: Any, c: Any) -> MatrixProduct:
    return MatrixProduct("float64", 2, 2, 3, a.pointer, b.pointer, c.pointer, 3, 2, 2)


def sent(driver: Driver, pointer: int, numbers: Any, stream: Any) -> Any:
    """Copy numbers to the device; return the pinned memory, to be held until they are there."""
    host = driver.pinned(numbers.nbytes)
    host[:] = np.ascontiguousarray(numbers).reshape(-1).view(np.uint8)
    driver.copy_in(pointer, host, stream)
    return host


def run(driver: Driver) -> list[Any]:
    """Return C of each round: A grows by the table's first word."""
    stream, done = driver.stream(), driver.event()
    a, b, c, table = (driver.allocate(nbytes) for nbytes in (48, 48, 32, 8))
    results = driver.allocate(32 * ROUNDS)
    hosts = [sent(driver, a.pointer, A, stream), sent(driver, b.pointer, B, stream)]
    grown = driver.load(TEXT)("grown")
    multiply = product(a, b, c)
    hosts.append(sent(driver, c.pointer, np.zeros(4), stream))
    driver.multiply(multiply, stream)  # what a product needs is there before one is captured
    driver.begin_capture(stream)
    driver.launch(grown, 2, (2, 1), [table.pointer, a.pointer], stream)
    driver.multiply(multiply, stream)
    graph = driver.end_capture(stream)
    for turn in range(1, ROUNDS + 1):
        hosts.append(sent(driver, table.pointer, np.array([turn]), stream))
        driver.replay(graph, stream)
        driver.copy(results.pointer + 32 * (turn - 1), c.pointer, 32, stream)
    back = driver.pinned(32 * ROUNDS)
    driver.copy_out(back, results.pointer, stream)
    driver.record(done, stream)
    driver.synchronize(done)
    return back.view(np.float64).reshape(ROUNDS, 2, 2).tolist()
