"""What happens before what: a vector clock for each stream, for each event, and for the host.

A clock says how much of each stream's work has happened: the number of its latest piece of work, from 1 on.
What is enqueued happens after all that the host has waited for, after what was enqueued on its stream before,
and after all that its stream waits for.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeAlias

from foldbatch.engines.cuda.recording.calls import Order

Clock: TypeAlias = dict[int, int]  # by stream


def join(clock: Clock, other: Clock) -> None:
    """Let a clock know what another one knows."""
    for stream, time in other.items():
        if clock.get(stream, 0) < time:
            clock[stream] = time


class Clocks:
    """The clocks of a device.

    >>> clocks = Clocks()
    >>> clocks.work(0)
    1
    >>> clocks.order(Order("record", 7, 0)) and clocks.order(Order("wait", 7, 1))
    True
    >>> clocks.work(1)
    1
    >>> clocks.streams[1], clocks.host
    ({0: 1, 1: 1}, {})
    """

    def __init__(self) -> None:
        self.streams: dict[int, Clock] = defaultdict(dict)
        self.events: dict[int, Clock] = {}
        self.host: Clock = {}

    def work(self, stream: int) -> int:
        """Enqueue work on a stream, and return its number there."""
        clock = self.streams[stream]
        join(clock, self.host)
        clock[stream] = clock.get(stream, 0) + 1
        return clock[stream]

    def order(self, order: Order) -> bool:
        """Record an event or wait for one; return False where it is waited for and was never recorded."""
        if order.kind == "record":
            join(self.streams[order.stream], self.host)
            self.events[order.event] = dict(self.streams[order.stream])
            return True
        clock = self.events.get(order.event)
        if clock is None:
            return False
        join(self.host if order.kind == "synchronize" else self.streams[order.stream], clock)
        return True

    def host_knows(self, stream: int, time: int) -> bool:
        """Whether the host has waited for a piece of work."""
        return self.host.get(stream, 0) >= time
