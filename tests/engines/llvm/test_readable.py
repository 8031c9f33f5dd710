"""The guards that look how CPython's objects lie in memory: what they read, and that they read no byte behind."""

import sys
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends import needs_llvm

pytestmark = needs_llvm
pytest.importorskip("llvmlite")

from foldbatch.engines.llvm import round_loops, rounds, walks  # noqa: E402 - they need llvmlite

RUNNER = round_loops.Runner([0] * round_loops.Runner.size)
RUNNER.whole_type, RUNNER.shift, RUNNER.signs = id(int), rounds.SHIFT, rounds.SIGNS


@given(st.one_of(st.integers(-(2**130), 2**130), st.integers(0, 2**62), st.integers(-(2**31), 2**31)))
def test_whole_numbers_are_read_as_they_are(number: int) -> None:
    assert rounds._whole_number(number, RUNNER) == (number if 0 <= number < 2**60 else -1)


@given(st.one_of(st.floats(), st.booleans(), st.just(None)))
def test_nothing_else_is_a_whole_number(thing: Any) -> None:
    assert rounds._whole_number(thing, RUNNER) == -1


def test_no_byte_behind_an_object_is_read() -> None:
    def allowed(thing: Any, size: int) -> memoryview:
        own = list.__basicsize__ if type(thing) is list else sys.getsizeof(thing)
        assert size <= own, f"{size} bytes of {thing!r}, which has {own}"
        return taken(thing, size)

    taken = rounds.bytes_of
    with mock.patch.object(rounds, "bytes_of", side_effect=allowed) as read:
        assert rounds.readable.__wrapped__()
    assert read.call_count > 9
    words = walks._words

    def counted(thing: Any, count: int) -> list[int]:
        assert 8 * count <= type(thing).__basicsize__ + 8 * (2 if type(thing) is tuple else 0)
        return words(thing, count)

    with mock.patch.object(walks, "_words", side_effect=counted):
        assert walks.readable.__wrapped__()
