"""Plans tell each target once, with its terms in order."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.engines.cuda.plans import joined, plan_of


def terms(plan: np.ndarray) -> dict[int, list[int]]:
    count = int(plan[0])
    targets, starts, order = plan[1 : 1 + count], plan[1 + count : 2 + 2 * count], plan[2 + 2 * count :]
    return {int(target): order[starts[i] : starts[i + 1]].tolist() for i, target in enumerate(targets)}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=12))
def test_every_term_is_added_once_and_in_order(rows: list[int]) -> None:
    plan = plan_of(np.array(rows, np.int32))
    assert plan.dtype == np.int64
    assert len(plan) == 2 + 2 * len(set(rows)) + len(rows)
    expected = {row: [i for i, other in enumerate(rows) if other == row] for row in sorted(set(rows))}
    assert terms(plan) == expected


def test_runs_of_numbers_are_joined() -> None:
    numbers, starts = joined([np.array([1, 2]), np.zeros(0, np.int64), np.array([3])], 10)
    assert (numbers.tolist(), starts) == ([1, 2, 3], [10, 12, 12])
    numbers, starts = joined([], 10)
    assert (len(numbers), starts) == (0, [])
