"""What is known before a recursion is told from what it makes itself."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.engines.llvm.known_rows import split, split_with, write_split

llvm = [
    pytest.mark.llvm,
    pytest.mark.skipif(find_spec("llvmlite") is None, reason="llvm is not installed"),
]
Splits = Callable[..., object]


@pytest.fixture(scope="module", params=["plain", pytest.param("compiled", marks=llvm)])
def splits(request: pytest.FixtureRequest):
    if request.param == "compiled":
        return split
    return lambda *arguments: split_with(write_split, *arguments)


def test_a_word_read_by_two_calls_is_one_row(splits: Splits) -> None:
    """Call 0 reads rows 7 and 4, call 1 rows 5 and 6: 7 is made by the recursion, 4 and 6 are the same word."""
    parts = splits(np.array([7, 4, 5, 6]), 2, np.array([-1] * 4 + [0, 1, 0, -1]), 2)
    assert parts.rows.tolist() == [7, 5, 4]
    assert parts.ranks.tolist() == [0, 2, 3], "call 0; then the known rows, numbered from the 2 calls on"
    assert parts.counts.tolist() == [[0, 1, 1, 2], [2, 2, 2, 3]]
    assert parts.place.tolist() == [-1, 1, 0, 1]
    assert parts.users.tolist() == [1, 0, 1]
    assert parts.starts.tolist() == [0, 1, 3]
    assert parts.size == 2


@given(
    st.integers(1, 3),
    st.lists(st.integers(0, 11), max_size=30),
    st.lists(st.integers(-1, 4), min_size=12, max_size=12),
)
def test_what_is_known_beforehand_is_split_off(
    splits: Splits, width: int, entries: list[int], groups: list[int]
) -> None:
    """Every entry is multiplied in its level, or is one of a group's that a single row stands for."""
    calls = len(entries) // width
    rows = np.array(entries[: calls * width], np.int64)
    parts = splits(rows, width, np.array(groups, np.int64), 5)
    assert {array.dtype.name for array in parts} == {"int64"}
    assert parts.counts.shape == (width, calls + 2)
    row_of_number: dict[int, tuple[int, int]] = {}
    for column in range(width):
        begin, first, last = (int(parts.counts[column, rank]) for rank in (0, calls, calls + 1))
        late = [call for call in range(calls) if groups[rows[call * width + column]] < 0]
        assert parts.ranks[begin:first].tolist() == late
        assert parts.rows[begin:first].tolist() == [rows[call * width + column] for call in late]
        ends = [begin + sum(x < call for x in late) for call in range(calls + 1)]
        assert parts.counts[column, :-1].tolist() == ends
        assert last == (len(parts.rows) if column + 1 == width else parts.counts[column + 1, 0])
        for at in range(first, last):
            number = int(parts.ranks[at]) - calls
            assert number == len(row_of_number)
            row_of_number[number] = column, int(parts.rows[at])
            users = parts.users[parts.starts[number] : parts.starts[number + 1]].tolist()
            readers = [
                call
                for call in range(calls)
                if groups[rows[call * width + column]] == groups[parts.rows[at]] >= 0
            ]
            assert users == readers
            assert parts.rows[at] == rows[readers[0] * width + column]
            assert parts.place.reshape(calls, width)[readers, column].tolist() == [number] * len(readers)
    assert parts.size == len(row_of_number)
    assert len(parts.users) == parts.starts[-1]
    assert (parts.place < 0).sum() == len(parts.rows) - len(row_of_number)
