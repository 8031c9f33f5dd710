"""The timing of repeated runs: a median, with the first and third quartile.

Machines are shared and drift. The ratio of two medians survives that if the runs took turns; the ratio of two
single runs does not.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
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


def timing(values: Sequence[float], parts: int = 1) -> Timing:
    """Return the timing of runs, each of as many equal parts: it is that of one part."""
    median = statistics.median(values)
    low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else [median] * 3
    return Timing(median / parts, low / parts, high / parts, len(values))
