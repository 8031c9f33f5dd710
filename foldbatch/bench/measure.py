"""Timing: what is compared is run in turn, in one process, and medians are kept.

Machines are shared and drift; a ratio of medians from interleaved runs survives that, a figure
from one run does not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one run: the median, and the first and third quartile."""

    median: float
    low: float
    high: float
    runs: int


def interleave(tasks: Mapping[str, Callable[[], object]], repeats: int, warmup: int = 1) -> dict[str, Timing]:
    """Run every task `repeats` times, in turn, and return the timings by name."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(warmup + repeats):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            if turn >= warmup:
                seconds[name].append(time.perf_counter() - start)
    return {name: _timing(values) for name, values in seconds.items()}


def _timing(values: list[float]) -> Timing:
    quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return Timing(statistics.median(values), quartiles[0], quartiles[2], len(values))
