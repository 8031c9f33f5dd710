"""What is known before a recursion is told from what it makes itself."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from foldbatch.scheduler import hoisting
from foldbatch.scheduler.layout import LAYOUTS
from foldbatch.scheduler.merge import merge
from foldbatch.scheduler.policies import POLICIES
from foldbatch.scheduler.schedule import Hoisted, Schedule
from foldbatch.scheduler.sharing import SHARES
from foldbatch.scheduler.tables import build
from foldbatch.scheduler.trace import CellSignature, Operand, Trace
from tests.scheduler.random_traces import leveled


def scheduled(
    layout: str,
    policy: str = "by_component",
    share: str | None = "leaves",
    *,
    least: float = 0.0,
    fewest: int = 1,
) -> Schedule:
    r"""Schedule two trees with the words 7, 8, 7 and 8, 7.

            4                  2
           / \                / \
          2   3 (7)     (8)  0   1 (7)
         / \
    (7) 0   1 (8)
    """
    leaf = CellSignature("leaf", 0, False, (), (0,), 0, shareable=True)
    node = CellSignature("node", 1, True, (Operand(0, (0, 1), None, 0, True),), (0,), 2, hoisted=0)
    none: tuple[tuple[()], tuple[()]] = ((), ())
    words = np.array([7, 8, 7]), np.array([8, 7])
    calls = [
        np.array(rows, np.int32)
        for rows in ([[0], [1], [3]], [[2, 0, 1], [4, 2, 3]], [[0], [1]], [[2, 0, 1]])
    ]
    one = Trace((calls[0], calls[1]), none, (), ((words[0],), ()), none, 5)
    other = Trace((calls[2], calls[3]), none, (), ((words[1],), ()), none, 3)
    cells, chosen = (leaf, node), POLICIES[policy]
    traces = [leveled(trace, cells, chosen) for trace in (one, other)]
    with mock.patch.multiple(hoisting, FEWEST=fewest, LEAST=least):
        return build(merge(traces, cells), cells, chosen, LAYOUTS[layout], 1, SHARES[share])


def distinct(split: Hoisted) -> int:
    return len(split.starts) - 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_words_are_multiplied_once_for_each_side(layout: str) -> None:
    schedule = scheduled(layout)
    split = schedule.cells[1].hoisted
    assert split is not None
    value_of = {int(row): value for value, row in enumerate(schedule.row_of)}
    assert distinct(split) == 4, "7 and 8 on the left, 8 and 7 on the right"
    assert split.counts.tolist() == [[0, 0, 0, 1], [3, 3, 3, 3]], "the last call reads a node on its left"
    assert [value_of[int(row)] for row in split.rows[:1]] == [2]
    assert split.ranks[0] == 2
    (span,) = schedule.cells[1].operands
    rows = np.arange(span.start, span.start + span.size) if span.start is not None else span.rows
    assert rows is not None
    for entry, place in enumerate(split.place):
        first = split.rows[split.ranks == 3 + place]
        words = [{0: 7, 1: 8, 3: 7, 5: 8, 6: 7}.get(value_of[int(row)]) for row in (rows[entry], *first)]
        assert place < 0 or words[0] == words[1]
    users = [split.users[a:b].tolist() for a, b in zip(split.starts[:-1], split.starts[1:], strict=True)]
    assert sorted(map(sorted, users)) == [[0], [0], [1], [1, 2]]


def test_words_that_are_not_shared_are_multiplied_for_each_call() -> None:
    split = scheduled("consumer", share=None).cells[1].hoisted
    assert split is not None
    assert distinct(split) == 5


def test_what_does_not_repeat_is_left_to_levels() -> None:
    """One of six rows repeats: the word 7, which is a right child twice."""
    assert scheduled("consumer", least=1 / 6).cells[1].hoisted is not None
    assert scheduled("consumer", least=0.17).cells[1].hoisted is None


def test_a_recursion_among_other_cells_hoists_nothing() -> None:
    """By depth, leaves and nodes take turns: not all leaves have run before the first node does."""
    assert scheduled("consumer", "by_depth").cells[1].hoisted is None


def test_few_calls_hoist_nothing() -> None:
    """The third call makes them enough."""
    assert scheduled("consumer", fewest=3).cells[1].hoisted is not None
    assert scheduled("consumer", fewest=4).cells[1].hoisted is None
