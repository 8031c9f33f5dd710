"""Levels by arrays are those of the sweep, and of compiled loops; `test_policies` says what levels are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from foldbatch.scheduler import heights as module
from foldbatch.scheduler.levels import levels
from foldbatch.scheduler.policies import POLICIES
from tests.scheduler.random_traces import Setting, settings_of


@given(settings_of())
@pytest.mark.parametrize("high", [1, 2, 64])
def test_levels_by_arrays_are_those_of_the_sweep(high: int, setting: Setting) -> None:
    trace = setting.merged.trace
    for policy in POLICIES.values():
        found = []
        for few in (10**9, -1):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(module, "FEW", few)
                patch.setattr(module, "HIGH", high)
                found.append(levels(policy, setting.signatures, trace.calls, trace.elements, trace.values))
        for sweep, arrays in zip(*found, strict=True):
            assert sweep.dtype == arrays.dtype == np.int32
            assert np.array_equal(sweep, arrays)
