"""A small program on a driver that replays a graph: a launch, and a product whose result lies elsewhere each time."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from foldbatch.engines.cuda.drivers.driver import Driver, Product, Span, Touched

TEXT = """
KERNEL grown(i8 table, i8 a) {
  for (i8 at = BLOCK * LANES_X + LANE_X; at < 6; at += BLOCKS * LANES_X) ((f8*)a)[at] += ((const i8*)table)[3];
}
"""
ROUNDS = 3
A, B = np.arange(6.0).reshape(2, 3), np.arange(6.0, 12).reshape(3, 2)
EXPECTED = [((A + turn * (turn + 1) // 2) @ B).tolist() for turn in range(1, ROUNDS + 1)]
PRODUCT = Product("float64", 2, 2, 3, 0, 0, 0, 3, 2, 2)


def sent(driver: Driver, pointer: int, numbers: Any, stream: Any) -> Any:
    """Copy numbers to the device; return the pinned memory, to be held until they are there."""
    host = driver.pinned(numbers.nbytes)
    host[:] = np.ascontiguousarray(numbers).reshape(-1).view(np.uint8)
    driver.copy_in(pointer, host, stream)
    return host


def captured(driver: Driver, table: Any, a: Any) -> Any:
    """Return the graph: A grows by the table's fourth word, and C = A B, of addresses in its first three."""
    stream = driver.stream()
    grown = driver.load(TEXT).function("grown")
    constant = Touched([Span(table.pointer + 24, 8), Span(a.pointer, 48)], [Span(a.pointer, 48)])
    driver.begin_capture(stream)
    driver.launch(grown, 2, (2, 1), [table.pointer, a.pointer], stream, lambda: constant)
    driver.multiply_at(PRODUCT, table.pointer, stream)
    return driver.end_capture(stream)


def run(driver: Driver, *, says: bool = True) -> list[Any]:
    """Return C of each round.

    Args:
        driver: does it.
        says: whether replays say what they touch beyond what the launch has said.
    """
    stream, done = driver.stream(), driver.event()
    a, b, table = driver.allocate(48), driver.allocate(48), driver.allocate(32)
    results = driver.allocate(32 * ROUNDS)
    hosts = [sent(driver, a.pointer, A, stream), sent(driver, b.pointer, B, stream)]
    graph = captured(driver, table, a)
    for turn in range(1, ROUNDS + 1):
        c = Span(results.pointer + 32 * (turn - 1), 32)
        words = np.array([a.pointer, b.pointer, c.pointer, turn])
        hosts.append(sent(driver, table.pointer, words, stream))
        more = Touched([Span(b.pointer, 48)], [c])
        driver.replay(graph, stream, partial(_same, more) if says else None)
    back = driver.pinned(32 * ROUNDS)
    driver.copy_out(back, results.pointer, stream)
    driver.record(done, stream)
    driver.synchronize(done)
    return back.view(np.float64).reshape(ROUNDS, 2, 2).tolist()


def _same(touched: Touched) -> Touched:
    return touched
