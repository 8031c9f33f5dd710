"""Which rows a batch knows before a recursion, and the launches that it is given for them."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from foldbatch.engines.launch import LaunchTable
from foldbatch.scheduler.layout import LAYOUTS
from foldbatch.scheduler.merge import merge
from foldbatch.scheduler.policies import POLICIES
from foldbatch.scheduler.schedule import Schedule
from foldbatch.scheduler.sharing import SHARES
from foldbatch.scheduler.tables import build
from foldbatch.scheduler.trace import CellSignature, Operand, Trace
from tests.scheduler.random_traces import leveled

pytestmark = pytest.mark.llvm

LEAF = CellSignature("leaf", 0, False, (), (0,), 0, shareable=True)
NODE = CellSignature("node", 1, True, (Operand(0, (0, 1), None, 0, True),), (0,), 2)


@pytest.fixture(scope="module")
def known_launches():
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    from foldbatch.engines.llvm import known_launches  # noqa: PLC0415 - it needs llvmlite

    return known_launches


def scheduled(layout: str = "consumer", share: str | None = "leaves") -> Schedule:
    r"""Schedule two trees with the words 7, 8, 7 and 8, 7.

            4                  2
           / \                / \
          2   3 (7)     (8)  0   1 (7)
         / \
    (7) 0   1 (8)
    """
    none: tuple[tuple[()], tuple[()]] = ((), ())
    words = np.array([7, 8, 7]), np.array([8, 7])
    calls = [
        np.array(rows, np.int32)
        for rows in ([[0], [1], [3]], [[2, 0, 1], [4, 2, 3]], [[0], [1]], [[2, 0, 1]])
    ]
    one = Trace((calls[0], calls[1]), none, (), ((words[0],), ()), none, 5)
    other = Trace((calls[2], calls[3]), none, (), ((words[1],), ()), none, 3)
    cells, policy = (LEAF, NODE), POLICIES["by_component"]
    traces = [leveled(trace, cells, policy) for trace in (one, other)]
    return build(merge(traces, cells), cells, policy, LAYOUTS[layout], 1, SHARES[share])


def known(module, schedule: Schedule, *, least: float = 0.0, fewest: int = 1):
    """Return the split of what nodes read; None where it does not pay."""
    with mock.patch.multiple(module, FEWEST=fewest, LEAST=least):
        return module.known_of(mock.Mock(signatures=(LEAF, NODE)), schedule, 1, 0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_words_are_multiplied_once_for_each_side(known_launches, layout: str) -> None:
    schedule = scheduled(layout)
    parts = known(known_launches, schedule)
    value_of = {int(row): value for value, row in enumerate(schedule.row_of)}
    assert parts.size == 4, "7 and 8 on the left, 8 and 7 on the right"
    assert parts.counts.tolist() == [[0, 0, 0, 1, 3], [3, 3, 3, 3, 5]], "the last call reads a node, left"
    assert [value_of[int(row)] for row in parts.rows[:1]] == [2]
    assert parts.ranks[0] == 2
    (span,) = schedule.cells[1].operands
    rows = np.arange(span.start, span.start + span.size) if span.start is not None else span.rows
    assert rows is not None
    word_of = {0: 7, 1: 8, 3: 7, 5: 8, 6: 7}
    for entry, place in enumerate(parts.place):
        first = parts.rows[parts.ranks == 3 + place]
        words = [word_of.get(value_of[int(row)]) for row in (rows[entry], *first)]
        assert place < 0 or words[0] == words[1]
    users = [parts.users[a:b].tolist() for a, b in zip(parts.starts[:-1], parts.starts[1:], strict=True)]
    assert sorted(map(sorted, users)) == [[0], [0], [1], [1, 2]]


def test_words_that_are_not_shared_are_multiplied_for_each_call(known_launches) -> None:
    assert known(known_launches, scheduled(share=None)).size == 5


def test_what_does_not_repeat_is_left_to_levels(known_launches) -> None:
    """One of six rows repeats: the word 7, which is a right child twice."""
    assert known(known_launches, scheduled(), least=1 / 6) is not None
    assert known(known_launches, scheduled(), least=0.17) is None


def test_few_calls_leave_all_to_levels(known_launches) -> None:
    """The third call makes them enough."""
    assert known(known_launches, scheduled(), fewest=3) is not None
    assert known(known_launches, scheduled(), fewest=4) is None


def test_launches_are_replaced_where_they_stood(known_launches) -> None:
    """Of kernels 5 to 8, kernel 6 by two others, one of which has a level of its own, and 8 by none."""
    launches = np.array([[5, 0, 1, 50], [6, 1, 3, 60], [7, 3, 4, 70], [8, 0, 4, 80]])
    bounds, index = np.array([[0, 2], [2, 3], [3, 4], [0, 4]]), np.arange(3)
    table = LaunchTable(launches, bounds, index, np.arange(2))
    instead = {8: [], 6: [(1, (9, 10)), (2, None)]}
    new = known_launches._replaced(
        table, instead, lambda launch: np.array([*launch, 1, 2][: 3 + launch.kernel])
    )
    assert new.launches.tolist() == [
        [5, 0, 1, 50, -1],
        [1, 4, 5, 1, -1],
        [2, 1, 3, 1, 2],
        [7, 3, 4, 70, -1],
    ]
    assert new.bounds.tolist() == [*bounds.tolist(), [9, 10]]
    assert (new.index.tolist(), new.heights.tolist()) == ([0, 1, 2], [0, 1])
