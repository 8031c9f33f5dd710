"""Strata are the pairs of level and cell that have calls; each is a group of its cell."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from foldbatch.scheduler.arithmetic import NUMPY
from foldbatch.scheduler.policies import POLICIES
from foldbatch.scheduler.strata import level_by_level, strata_of
from foldbatch.scheduler.trace import Trace
from tests.scheduler.random_traces import Setting, settings_of


@given(settings_of(examples=2))
@settings(max_examples=40)
def test_turns_are_the_strata_in_order_and_groups_are_numbered_without_gaps(setting: Setting) -> None:
    trace = setting.under(POLICIES["by_depth"]).merged.trace
    cells = range(len(setting.signatures))
    strata = strata_of(trace, cells, NUMPY)
    groups, turns = level_by_level(strata, cells, NUMPY)
    pairs = sorted({(int(level), k) for k in cells for level in trace.levels[k]})
    assert [k for k, _ in turns] == [k for _, k in pairs] == strata.places.tolist()
    assert strata.height == max((level for level, _ in pairs), default=-1) + 1
    for k in cells:
        distinct, numbers = np.unique(trace.levels[k], return_inverse=True)
        assert np.array_equal(groups[k], numbers)
        assert [n for cell, n in turns if cell == k] == list(range(len(distinct)))


def test_levels_times_cells_may_pass_what_an_index_of_32_bits_holds() -> None:
    """A deep chain of one of many cells: the calls of the others are few."""
    levels = (np.array([2**30, 0], np.int32), np.array([5], np.int32), np.zeros(0, np.int32))
    none = ((), (), ())
    trace = Trace(tuple(np.zeros((len(x), 1), np.int32) for x in levels), none, levels, none, none, 3)
    groups, turns = level_by_level(strata_of(trace, range(3), NUMPY), range(3), NUMPY)
    assert turns == [(0, 0), (1, 0), (0, 1)]
    assert [part.tolist() for part in groups] == [[1, 0], [0], []]
