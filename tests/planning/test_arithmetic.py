"""What is done to whole arrays: in NumPy as one says it, and as loops, run plainly and compiled, to the bit."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.planning import integers
from foldbatch.scheduler.trace import form, pack
from tests.planning import arithmetic as oracle
from tests.planning.arithmetic import SHORT, consecutive, ranks
from tests.planning.random_traces import Setting, settings_of
from tests.planning.ways import WAYS, planned_by

small_ints = st.lists(st.integers(0, 9), max_size=30)


@pytest.fixture(params=["numpy", *WAYS], scope="module")
def arithmetic(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A module with `join` and `group`."""
    if request.param == "numpy":
        yield oracle
        return
    with planned_by(request.param):
        yield integers


def index(items: Any) -> Any:
    return np.array(items, np.int64)


def is_index(*arrays: Any) -> bool:
    return all(array.dtype == np.int64 and array.ndim == 1 for array in arrays)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.sampled_from(["int32", "uint8", "int64"]))
def test_grouping_leaves_out_numbers_that_do_not_occur(arithmetic, keys, dtype):
    order, bounds = arithmetic.group(np.array(keys, dtype))
    assert is_index(order, bounds)
    assert order.tolist() == sorted(range(len(keys)), key=keys.__getitem__)
    assert bounds.tolist() == [sum(k < key for k in keys) for key in sorted(set(keys))] + [len(keys)]


def test_few_large_numbers_are_sorted_without_a_table_of_all(arithmetic: Any) -> None:
    """Two thousand million of them would not fit."""
    for many in (1, 50):
        keys = np.array([2**31 - 1, SHORT, 2**31 - 1, -1, 0] * many, np.int32)
        order, bounds = arithmetic.group(keys)
        assert order.tolist() == sorted(range(len(keys)), key=keys.__getitem__)
        assert bounds.tolist() == [0, many, 2 * many, 3 * many, 5 * many]


@given(st.one_of(small_ints, st.lists(st.integers(0, 3), max_size=3, unique=True)))
def test_ranks_are_a_stable_order_that_may_have_no_gaps(keys: list[int]) -> None:
    rows = index([99, *range(10)])
    calls = np.array([[0, 1 + key] for key in keys], np.int32).reshape(-1, 2)
    order, first = ranks(rows, calls, 1, 10)
    assert is_index(order)
    assert order.tolist() == sorted(range(len(keys)), key=keys.__getitem__)
    follow = keys and sorted(keys) == list(range(min(keys), min(keys) + len(keys)))
    assert first == (min(keys) if follow else None)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(0, 3))
def test_rows_that_follow_each_other_are_told_from_others(rows: list[int], start: int) -> None:
    for some in (rows, list(range(start, start + len(rows)))):
        assert consecutive(index(some)) == (some == list(range(some[0], some[0] + len(some))))


@given(settings_of())
def test_packed_traces_are_joined_alike(arithmetic: Any, setting: Setting) -> None:
    """What joining does is tested where traces are merged."""
    blocks = [*map(pack, setting.traces)]
    if not blocks:
        return
    its = setting.traces[0].form
    found, expected = (a.join(blocks, its) for a in (arithmetic, oracle))
    for array, right in zip(found, expected, strict=True):
        assert array.dtype == np.int32
        assert array.tolist() == right.tolist()


def test_a_trace_of_another_form_is_refused(arithmetic: Any) -> None:
    """Or loops would read beyond its end."""
    its = form((1,), ((),), ((),))
    good = np.array([2, 1, 0, 1, 0], np.int32)  # two values, one call: value 0 of value 1, at level 0
    for bad in (
        good[:1],
        good[:-1],
        np.append(good, np.int32(0)),
        *np.array([[2, 3, 0, 1, 0], [2, -1, 0, 1, 0]], "i4"),
    ):
        for blocks in ([bad], [good, bad], [bad, good]):
            with pytest.raises(AssertionError, match="differ in form"):
                arithmetic.join(blocks, its)
