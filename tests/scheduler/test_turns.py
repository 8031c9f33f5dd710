"""What the loops of planning do on lists; `test_frontier` checks which cells they choose."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from foldbatch.scheduler.turns import drain, weigh

CHAINS = 12  # that go through the cells in different orders


class _Counted(list):
    """A list that counts how often its elements are read."""

    reads = 0

    def __getitem__(self, place: Any) -> Any:
        self.reads += 1
        return super().__getitem__(place)


def _chains(cells: int, length: int) -> tuple[list[int], list[int], list[int]]:
    """Return the cells of calls in chains, where each call's readers begin, and the readers."""
    places = [(i * (1 + c % 3) + c) % cells for c in range(CHAINS) for i in range(length)]
    readers = [n for n in range(len(places)) if n % length]
    lengths = [int((n + 1) % length > 0) for n in range(len(places))]
    return places, [sum(lengths[:n]) for n in range(len(places) + 1)], readers


def _run(cells: int, length: int) -> tuple[int, list[int], list[int], list[_Counted]]:
    places, ends, readers = _chains(cells, length)
    calls, watched = len(places), [_Counted(places), _Counted(ends), _Counted(readers)]
    weights = [0.0] * calls
    weigh(list(range(calls)), ends, readers, weights)
    waits = [int(n % length > 0) for n in range(calls)]
    groups, turns = [-1] * calls, [0] * calls
    zeros, none = ([0.0] * cells, [0.0] * cells), [-1] * cells
    count = drain(
        *watched, weights, [], waits, *zeros, [-1.0] * cells, none, [-1] * calls, [0] * cells, groups, turns
    )  # fmt: skip
    return count, groups, turns, watched


def test_a_call_weighs_the_square_of_the_longest_path_from_it() -> None:
    """Of 0 -> 1 -> 3 -> 4, 0 -> 2 -> 3 and 0 -> 4; and paths longer than 2,000 calls weigh alike."""
    weights = [0.0] * 5
    weigh([0, 2, 1, 3, 4], [0, 3, 4, 5, 6, 6], [1, 2, 4, 3, 3, 4], weights)
    assert weights == [16, 9, 9, 4, 1]
    n = 3000
    weights = [0.0] * n
    weigh(range(n), [*range(n), n - 1], range(1, n), weights)
    assert weights == [min(n - i, 2000) ** 2 for i in range(n)]


@pytest.mark.parametrize("cells", [1, 2, 5, 40])
def test_every_call_runs_once_after_those_that_it_reads(cells: int) -> None:
    length = 15
    count, groups, turns, _ = _run(cells, length)
    places = _chains(cells, length)[0]
    numbers: Counter[int] = Counter()
    when = {}
    for turn, place in enumerate(turns[:count]):
        when[place, numbers[place]] = turn
        numbers[place] += 1
    ran = [when[pair] for pair in zip(places, groups, strict=True)]
    assert set(ran) == set(range(count))
    for chain in range(CHAINS):
        assert all(a < b for a, b in pairwise(ran[chain * length : (chain + 1) * length]))


@pytest.mark.parametrize("cells", [2, 50])
def test_the_work_grows_with_calls_and_reads_alone(cells: int) -> None:
    """However many cells there are: each call and each read is looked at a fixed number of times."""
    for length in (10, 40):
        *_, (places, ends, readers) = _run(cells, length)
        assert places.reads <= 4 * len(places)
        assert ends.reads <= 2 * len(ends)
        assert readers.reads == len(readers)
