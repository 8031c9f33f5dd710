"""Levels of scopes are those that any arithmetic finds; `test_policies` says what levels are."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from foldbatch.scheduler.levels import levels
from foldbatch.scheduler.policies import POLICIES
from tests.engines.numba.test_integer_loops import PLAIN
from tests.scheduler.random_traces import Setting, settings_of


@given(settings_of())
def test_compiled_levels_are_those_of_numpy(setting: Setting) -> None:
    trace, cells = setting.merged.trace, setting.signatures
    for policy in POLICIES.values():
        expected = levels(policy, cells, trace.calls, trace.elements, trace.values)
        found = levels(policy, cells, trace.calls, trace.elements, trace.values, PLAIN)
        for own, right in zip(found, expected, strict=True):
            assert own.dtype == right.dtype == np.int32
            assert np.array_equal(own, right)


@given(settings_of())
def test_calls_in_any_order_have_the_same_levels(setting: Setting) -> None:
    """A cell's calls need not be in the order of their values, which compiled loops leave to NumPy."""
    trace, cells = setting.merged.trace, setting.signatures
    if any(cell.sequences for cell in cells):
        return
    expected = levels(setting.policy, cells, trace.calls, trace.elements, trace.values)
    turned = [rows[::-1].copy() for rows in trace.calls]
    found = levels(setting.policy, cells, turned, trace.elements, trace.values, PLAIN)
    for own, right in zip(found, expected, strict=True):
        assert np.array_equal(own[::-1], right)
