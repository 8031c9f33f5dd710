"""Timing: what is compared is run in turn, in one process, and medians are kept.

Machines are shared and drift; a ratio of medians from interleaved runs survives that, a figure
from one run does not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one run: the median, and the first and third quartile."""

    median: float
    low: float
    high: float
    runs: int

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles, as a share of the median."""
        return (self.high - self.low) / 2 / self.median


def interleave(tasks: Mapping[str, Callable[[], object]], repeats: int, warmup: int = 1) -> dict[str, Timing]:
    """Run every task `repeats` times, in turn, and return the timings by name."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(warmup + repeats):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            if turn >= warmup:
                seconds[name].append(time.perf_counter() - start)
    return {name: timing(values) for name, values in seconds.items()}


def timing(values: Sequence[float], parts: int = 1) -> Timing:
    """Return the timing of runs, each of as many equal parts: it is that of one part."""
    median = statistics.median(values)
    low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else [median] * 3
    return Timing(median / parts, low / parts, high / parts, len(values))
