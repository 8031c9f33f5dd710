"""Levels of scopes are those that any arithmetic finds; `test_policies` says what levels are."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from foldbatch.scheduler.levels import levels
from foldbatch.scheduler.policies import POLICIES
from tests.engines.llvm.test_integer_loops import PLAIN
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
