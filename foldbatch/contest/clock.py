"""The clock that all contenders run by: what is left of a contender's time, and the CPU time it took."""

import time


class Clock:
    """The time that a contender may train.

    Args:
        seconds: of the wall clock, from now on.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began, self._cpu = time.monotonic(), time.process_time()

    def elapsed(self) -> float:
        """Return the seconds that are over."""
        return time.monotonic() - self._began

    def remaining(self) -> float:
        """Return the seconds that are left, 0 at the least."""
        return max(self.seconds - self.elapsed(), 0.0)

    def is_over(self) -> bool:
        """Return whether no time is left."""
        return self.elapsed() >= self.seconds

    def cpu(self) -> float:
        """Return the seconds of the process's CPU time since the start, of all its threads."""
        return time.process_time() - self._cpu

    def part(self, share: float) -> "Clock":
        """Return a clock, from now on, of a share of the seconds that are left."""
        return Clock(self.remaining() * share)
