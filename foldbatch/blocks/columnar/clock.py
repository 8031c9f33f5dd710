"""Clock: in which order the calls of all lanes are made, found without making them one by one.

A *frame* is what runs once in each of its lanes: a function, or the body of a loop. While its statements
are applied to columns it notes *events* in order: calls of cells, loops, and visits of a recursive function.
When all calls are counted, the events are gone through once more, now with a clock in each lane.

A lane of a recursive function stands for a visit of a node. The visits below it are those of its subtree: a
range of lanes. So the calls below a visit are a difference of two prefix sums. The time when a visit starts
is the sum of the delays of all visits around it. That is such a difference as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Counts: TypeAlias = NDArray[np.int32]
Lanes: TypeAlias = "NDArray[np.int64] | None"  # None: all of them, in order


@dataclass(slots=True, eq=False)
class Frame:
    """What runs once in each lane."""

    size: int  # the number of lanes
    # what happens, in order; each in some lanes
    events: list[Calls | Turns | Visits] = field(default_factory=list)

    def count(self, *, visits: bool = True) -> Counts:
        """Return how many calls each lane makes; those of visits are counted or not."""
        total = np.zeros(self.size, np.int32)
        for event in self.events:
            match event:
                case Calls(lanes):
                    _add(total, lanes, 1)
                case Turns(lanes, body, turns):
                    _add(total, lanes, _sums(body.count(visits=visits), turns))
                case Visits(lanes, recursion, visited) if visits:
                    _add(total, lanes, recursion.calls.take(visited))
        return total

    def run(self, clock: Counts, times: Counts | None) -> None:
        """Run the events, each lane from its time in `clock` on.

        Visits get their delays, and if `times`, ``[calls]``, is given, calls get their times there.
        """
        for event in self.events:
            match event:
                case Calls(lanes, first):
                    now = clock if lanes is None else clock.take(lanes)
                    if times is not None:
                        times[first : first + len(now)] = now
                    _add(clock, lanes, 1)
                case Turns(lanes, body, turns):
                    spent = body.count()
                    before = np.cumsum(spent, dtype=np.int32) - spent
                    ends = np.cumsum(turns)
                    now = clock if lanes is None else clock.take(lanes)
                    some = turns > 0
                    start = now[some] - before[(ends - turns)[some]]
                    body.run(before + np.repeat(start, turns[some]), times)
                    _add(clock, lanes, _sums(spent, turns))
                case Visits(lanes, recursion, visits):
                    recursion.delays[visits] = clock if lanes is None else clock.take(lanes)
                    _add(clock, lanes, recursion.calls.take(visits))


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """Calls of a cell, one a lane; they are numbered from `first` on."""

    lanes: Lanes
    first: int


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """A loop, with the number of turns in each lane; the lanes of its body are the turns."""

    lanes: Lanes
    body: Frame
    turns: Counts


@dataclass(frozen=True, slots=True, eq=False)
class Visits:
    """Visits of a recursive function, one a lane, by their lanes there."""

    lanes: Lanes
    recursion: Recursion
    visits: NDArray[Any]


class Recursion:
    """The visits of a recursive function.

    Args:
        frame: what each visit does.
        low: ``[visits]``: the first visit in the subtree of each; the last one is the visit itself.

    Attributes:
        calls: ``[visits]``: how many calls each visit makes, those of visits below it counted.
        delays: ``[visits]``: the time from the start of the visit around it, or if there is none, of the
            example, to its own.
    """

    def __init__(self, frame: Frame, low: Counts) -> None:
        self.frame, self.low = frame, low
        self.calls: Counts = np.zeros(frame.size, np.int32)
        self.delays: Counts = np.zeros(frame.size, np.int32)

    def count(self) -> None:
        """Count the calls, and find the delays of all visits within others; all events are noted."""
        sums = np.zeros(self.frame.size + 1, np.int32)
        np.cumsum(self.frame.count(visits=False), out=sums[1:])
        self.calls = sums[1:] - sums.take(self.low)
        self.frame.run(np.zeros(self.frame.size, np.int32), None)

    def end(self, times: Counts) -> None:
        """Find the times of all calls; the delays of all visits are known."""
        # the visits around v are those from v on whose subtrees begin at v or before
        late = np.flatnonzero(self.delays)
        begun = np.bincount(
            self.low.take(late), self.delays.take(late), self.frame.size
        ).cumsum()  # as floats
        begun -= np.cumsum(self.delays, dtype=np.int64)
        self.frame.run(begun.astype(np.int32) + self.delays, times)


def _add(total: Counts, lanes: Lanes, amount: Counts | int) -> None:
    """Add to some lanes, all different."""
    if lanes is None:
        total += amount
    else:
        total[lanes] += amount


def _sums(values: Counts, lengths: Counts) -> Counts:
    """Return the sums of neighbouring values, as many as each length says."""
    sums = np.zeros(len(values) + 1, np.int32)
    np.cumsum(values, out=sums[1:])
    ends = np.cumsum(lengths)
    result: Counts = sums[ends] - sums[ends - lengths]
    return result
