"""One check of the data that were noted: both doors refuse the same datum, and read what can be read alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import ExampleError, ExamplePlace
from foldbatch.model.columns import column
from foldbatch.model.drafts import Feed
from foldbatch.recorder.checks import NotedData, first_bad
from foldbatch.types import TensorType

INTEGERS = TensorType((), "int32")
word = fb.Scalar("int32") >> fb.Embedding(5, 3, name="word")
other = fb.Scalar("int64") >> fb.Embedding(6, 3, name="other")


def walk(example: Any) -> Any:
    first, *rest = [other(item) + word(item) for item in example]
    for state in rest:
        first = first + state
    return first


@pytest.fixture(params=["blocks", "functions"])
def program(request: pytest.FixtureRequest) -> fb.Program:
    both = fb.AllOf(other, word) >> fb.Function(lambda a, b: a + b)
    return fb.compile(walk if request.param == "functions" else fb.Map(both) >> fb.Sum(), "numpy")


@pytest.mark.parametrize(
    ("examples", "bad", "found"),
    [
        ([[1, 2], [3, 5], [1, 7]], 1, "int 5"),  # 5 fits the first cell that reads it, and not the second
        ([[1, 2], [3, 4, 7, 5], [-1]], 1, "int 7"),
        ([["a", 9]], 0, "str 'a'"),
        ([[2], [np.uint64(3), 1], [np.int64(-2), 3]], 2, "int64 np.int64(-2)"),
    ],
)
def test_both_doors_name_the_first_datum_that_cannot_be_read(
    program: fb.Program, examples: list[Any], bad: int, found: str
) -> None:
    with pytest.raises(ExampleError) as refused:
        program.run(examples)
    assert isinstance(refused.value.where, ExamplePlace)
    assert refused.value.where.example == bad
    assert refused.value.found == found


def test_both_doors_read_numbers_that_no_dtype_has_all_of(program: fb.Program) -> None:
    """NumPy makes floats of an unsigned and a signed number, and floats are no ids."""
    (mixed,), (plain,) = program.run([[np.uint64(3), np.int64(2)]]), program.run([[3, 2]])
    assert np.array_equal(mixed, plain)


def test_a_column_is_refused_for_an_item_that_would_be_refused_alone() -> None:
    mixed = column([np.uint64(3), np.int64(-2)], INTEGERS)
    assert (mixed.dtype, mixed.tolist()) == (np.int32, [3, -2])


def test_the_first_call_is_found_through_all_feeds() -> None:
    """Of two data of one call the first feed's is told."""
    feeds = [Feed(INTEGERS, name, "") for name in ("late", "early", "same")]
    noted = [
        NotedData(feeds[0], 5, [1, 9], [0, 4]),
        NotedData(feeds[1], 5, [2, 8, 7], [1, 3, 5]),
        NotedData(feeds[2], 5, [6], [3]),
    ]
    found = first_bad(noted)
    assert found is not None
    assert (found.call, found.where, found.error.found) == (3, "early", "int 8")
    assert first_bad([NotedData(feeds[0], None, [1, 9], [0, 4])]) is None
