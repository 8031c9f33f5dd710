"""A trace is plain data."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from foldbatch.scheduler.merge import merge
from foldbatch.scheduler.trace import CellSignature, Trace, arguments_of, lengths_of, pack
from tests.scheduler.random_traces import Setting, settings_of
from tests.scheduler.test_merge import assert_same


@given(settings_of(examples=1))
def test_a_trace_can_be_pickled(setting: Setting) -> None:
    """What comes back has the same numbers, of the same dtypes, and the same labels."""
    for trace in setting.traces:
        assert_same(pickle.loads(pickle.dumps(trace)), trace)


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


@given(settings_of(examples=1))
def test_what_is_packed_is_one_array_and_views_of_it(setting: Setting) -> None:
    """All but the feeds that are no single integers of 32 bits; and it is the same trace."""
    for trace in setting.traces:
        packed = pack(trace)
        assert_same(packed, trace)
        assert packed.packed is not None
        parts = [*packed.calls, *packed.levels, *(e for parts in packed.elements for e in parts)]
        feeds = [feed for columns in packed.feeds for feed in columns]
        parts += [feed for feed in feeds if feed.dtype == np.int32]
        for part in parts:
            assert not part.size or np.shares_memory(part, packed.packed)
        head = 1 + len(trace.calls) + sum(map(len, trace.elements))
        assert len(packed.packed) == head + sum(part.size for part in parts)
        for feed in feeds:
            assert feed.dtype == np.int32 or not np.shares_memory(feed, packed.packed)


@given(settings_of(examples=1))
def test_a_packed_trace_is_pickled_once(setting: Setting) -> None:
    """Not its views once more; what comes back has the very form of others."""
    for trace in map(pack, setting.traces):
        found = pickle.loads(pickle.dumps(trace))
        assert_same(found, trace)
        assert found.form is trace.form
        for part in (*found.calls, *found.levels):
            assert not part.size or np.shares_memory(part, found.packed)


def test_a_changed_trace_is_packed_anew() -> None:
    """A view of what was packed before would be lost in a batch."""
    one = Trace((np.array([[0]], np.int32),), ((),), (np.zeros(1, np.int32),), ((),), ((),), 1)
    changed = replace(pack(one), levels=(np.array([3], np.int32),))
    assert changed.packed is None
    assert pack(changed).levels[0].tolist() == [3]
    assert merge([changed, changed], [CellSignature("a", 0, False, (), (0,), 0)]).trace.levels[
        0
    ].tolist() == [
        3,
        3,
    ]


def test_a_trace_is_packed_when_its_levels_are_known() -> None:
    one = Trace((np.array([[0]], np.int32),), ((),), (), ((),), ((),), 1)
    with pytest.raises(AssertionError, match="levels are known"):
        pack(one)
