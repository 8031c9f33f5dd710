"""Running calls as they become ready, as loops over single numbers: run on lists, or compiled for arrays.

One text serves both: NumPy has no function for this work, and at a few calls a turn Python's lists are
faster than arrays. Nothing is allocated: what is returned is written to arguments. The time grows with the
calls, what they read, and once a turn the cells.
"""
# ruff: noqa: FURB136 - compiled text has min and max of whole numbers alone

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

Integers = Sequence[int]
Written = MutableSequence[int]
Figures = MutableSequence[float]


def weigh(order: Integers, ends: Integers, readers: Integers, weights: Figures) -> None:
    """Write the weight of each call: the square of the number of calls on the longest path that it begins.

    A path counts as 2,000 calls at most, so that sums of 2**31 weights are exact.
    """
    for i in range(len(order) - 1, -1, -1):
        call = order[i]
        longest = 0.0
        for at in range(ends[call], ends[call + 1]):
            longest = weights[readers[at]] if weights[readers[at]] > longest else longest
        weights[call] = longest + 1.0
    for call in range(len(weights)):
        weight = weights[call] if weights[call] < 2000.0 else 2000.0
        weights[call] = weight * weight


def drain(
    places: Integers,  # the cell of each call
    ends: Integers,  # where each call's readers begin in `readers`, and the end
    readers: Integers,  # the calls that read a call's results, once for every read
    weights: Sequence[float],  # of the calls
    # of the cells: their scores. Where there is none, a cell's score is what its ready calls weigh, times
    # their share of what all its calls weigh that are left
    preference: Sequence[float],
    waits: Written,  # how many results each call still waits for
    ready: Figures,  # zeros, one a cell: what its ready calls weigh
    remaining: Figures,  # zeros, one a cell: what its calls weigh that have not run
    scores: Figures,  # -1, one a cell: its score; -1 where no call is ready
    first: Written,  # -1, one a cell: a ready call
    following: Written,  # one a call: the next ready call of its cell, or -1
    taken: Written,  # zeros, one a cell: its turns so far
    groups: Written,  # one a call, to be written: the turn of its cell in which it runs, from 0 on
    turns: Written,  # one a call, of which the first are written: the cell of each turn
) -> int:
    """Run all calls, in every turn all ready ones of the cell of the highest score; return how many turns.

    Of equals the earlier cell runs.
    """
    cells, count, preferred = len(first), 0, len(preference) > 0
    for call in range(len(places)):
        remaining[places[call]] += weights[call]
    for call in range(len(places)):
        if waits[call] == 0:
            place = places[call]
            following[call] = first[place]
            first[place] = call
            weight = ready[place] + weights[call]
            ready[place] = weight
            scores[place] = preference[place] if preferred else weight * weight / remaining[place]
    while True:
        best, best_score = -1, -1.0
        for place in range(cells):
            if scores[place] > best_score:
                best, best_score = place, scores[place]
        if best < 0:
            return count
        call, group = first[best], taken[best]
        turns[count] = best
        count += 1
        taken[best] += 1
        first[best], scores[best] = -1, -1.0
        remaining[best] -= ready[best]
        ready[best] = 0.0
        while call >= 0:
            groups[call] = group
            for at in range(ends[call], ends[call + 1]):
                reader = readers[at]
                waits[reader] -= 1
                if waits[reader] == 0:
                    place = places[reader]
                    following[reader] = first[place]
                    first[place] = reader
                    weight = ready[place] + weights[reader]
                    ready[place] = weight
                    scores[place] = preference[place] if preferred else weight * weight / remaining[place]
            call = following[call]
