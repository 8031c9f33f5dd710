"""A trace is plain data."""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given

from foldbatch.scheduler.trace import Trace, arguments_of, lengths_of
from tests.scheduler.random_traces import Setting, settings_of
from tests.scheduler.test_merge import assert_same


@given(settings_of(examples=1))
def test_a_trace_can_be_pickled(setting: Setting) -> None:
    """What comes back has the same numbers, of the same dtypes, and the same labels."""
    for trace in setting.traces:
        assert_same(pickle.loads(pickle.dumps(trace)), trace)


def test_a_trace_carries_its_result_along_unread() -> None:
    """Value numbers in nested tuples and lists, and whatever objects the example passes on."""
    result = (3, [(1, "word"), (2, None)])
    trace = Trace((), (), (), (), (), 4, result)
    assert pickle.loads(pickle.dumps(trace)).result == result
    assert trace.size == 0


@given(settings_of(examples=1))
def test_a_calls_columns_are_its_first_value_its_arguments_and_its_lengths(setting: Setting) -> None:
    """In that order; lengths add up to the elements there are."""
    for trace in setting.traces:
        for k, cell in enumerate(setting.signatures):
            assert trace.calls[k].shape == (len(trace.levels[k]), 1 + cell.arguments + len(cell.sequences))
            assert np.array_equal(
                arguments_of(trace, setting.signatures, k), trace.calls[k][:, 1 : 1 + cell.arguments]
            )
            for i in range(len(cell.sequences)):
                assert lengths_of(trace, setting.signatures, k, i).sum() == len(trace.elements[k][i])
        assert trace.size == sum(len(rows) for rows in trace.calls)
