"""Vectors with a single one, for one of a range of ints or of a list of anything."""

from __future__ import annotations

import enum

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import ExampleKeyError
from tests.blocks.results import yields


def one(at: int, of: int) -> list[float]:
    return [float(i == at) for i in range(of)]


@pytest.mark.parametrize(("start", "stop"), [(3, None), (0, 3), (1, 3), (-2, 2), (5, 6), (-3, 0), (-3, -1)])
def test_the_ints_are_those_of_a_range(start, stop):
    numbers = range(start) if stop is None else range(start, stop)
    yields(fb.OneHot(start, stop), *((x, one(at, len(numbers))) for at, x in enumerate(numbers)))
    program = fb.compile(fb.OneHot(start, stop))
    for outside in (numbers.start - 1, numbers.stop):
        with pytest.raises(ExampleKeyError, match="at example 1: expected an int from"):
            program.run([numbers.start, outside])


def test_numbers_that_equal_an_int_are_that_int():
    """As in Python's own dicts."""
    yields(fb.OneHot(3), (np.int64(2), one(2, 3)), (True, one(1, 3)), (1.0, one(1, 3)))


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool"])
def test_vectors_have_the_dtype_asked_for(dtype):
    for block, example in ((fb.OneHot(3, dtype=dtype), 1), (fb.OneHotFromList("abc", dtype), "b")):
        np.testing.assert_array_equal(block.eval(example), np.array([0, 1, 0], dtype), strict=True)
        assert str(block.output_type) == f"{dtype}[3]"


def test_elements_of_a_list_may_be_anything_hashable():
    class Side(enum.Enum):
        LEFT = "left"

    elements = ["a", 2, None, ("b", 1), Side.LEFT, int]
    for given in (elements, tuple(elements), iter(elements)):
        yields(fb.OneHotFromList(given), *((x, one(at, 6)) for at, x in enumerate(elements)))


def test_what_is_not_in_the_list_is_an_error_or_zeros():
    strict, tolerant = fb.OneHotFromList(["a", "b"]), fb.OneHotFromList(["a", "b"], strict=False)
    for unknown in ("c", None, 0, ["a"], {}):  # be it hashable or not
        with pytest.raises(ExampleKeyError, match="at example 0: expected one of 'a', 'b'"):
            strict.eval(unknown)
        yields(tolerant, (unknown, [0.0, 0.0]), ("b", [0.0, 1.0]))


def test_the_list_is_copied():
    elements = ["a", "b"]
    block = fb.OneHotFromList(elements)
    elements.reverse()
    assert block.eval("a").tolist() == [1.0, 0.0]
