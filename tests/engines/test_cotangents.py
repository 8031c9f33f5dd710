"""Cotangents in the form of results: which values they belong to, and what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foldbatch.engines.cotangents import numbered, seeds_of
from foldbatch.errors import ExampleError, ExampleTypeError
from foldbatch.types import OBJECT, VOID, BroadcastType, SequenceType, TensorType, TupleType, Type

PAIR, ONE, COUNT = TensorType((2,)), TensorType((), "float64"), TensorType((), "int64")


def found(type_: Type, held: list[Any], cotangent: Any) -> list[tuple[int, Any]]:
    return [(n, g.tolist()) for n, g in numbered(type_, iter(held), cotangent, "cotangents[0]")]


@pytest.mark.parametrize(
    ("type_", "held", "cotangent", "expected"),
    [
        (PAIR, [5], [1, 2], [(5, [1, 2])]),
        (PAIR, [5], None, []),
        (ONE, [5], 3, [(5, 3.0)]),
        (VOID, [], None, []),
        (OBJECT, ["x"], None, []),
        (COUNT, [5], None, []),
        (TupleType((PAIR, OBJECT, ONE)), [1, "x", 4], ([1, 2], None, 3), [(1, [1, 2]), (4, 3.0)]),
        (TupleType((PAIR, ONE)), [1, 4], (None, 3), [(4, 3.0)]),
        (TupleType((PAIR, ONE)), [1, 4], None, []),
        (SequenceType(ONE), [[3, 8, 9]], [1, None, 2], [(3, 1.0), (9, 2.0)]),
        (SequenceType(ONE), [[3, 8]], np.array([1, 2]), [(3, 1.0), (8, 2.0)]),
        (SequenceType(ONE), [[]], [], []),
        (SequenceType(TupleType((ONE, COUNT))), [[(3, 4), (7, 8)]], [(1, None), None], [(3, 1.0)]),
        (
            SequenceType(SequenceType(ONE)),
            [[[1], [], [2, 3]]],
            [[1], [], [2, 3]],
            [(1, 1.0), (2, 2.0), (3, 3.0)],
        ),
        (BroadcastType(ONE), [6], 2, [(6, 2.0)]),
        (TupleType((TupleType((ONE, ONE)), ONE)), [1, 2, 3], ((1, 2), 3), [(1, 1.0), (2, 2.0), (3, 3.0)]),
    ],
    ids=str,
)
def test_each_value_has_the_cotangent_that_stands_in_its_place(type_, held, cotangent, expected):
    assert found(type_, held, cotangent) == expected


def test_they_have_the_dtype_of_the_value():
    ((_, g),) = numbered(PAIR, iter([0]), [1, 2], "cotangents[0]")
    assert g.dtype == np.float32
    assert found(ONE, [0], np.float32(0.5)) == [(0, 0.5)]


@pytest.mark.parametrize(
    ("type_", "held", "cotangent", "error", "message"),
    [
        (
            PAIR,
            [0],
            [1, 2, 3],
            ExampleError,
            r"cotangents\[0\]: expected numbers of shape \(2,\), found shape \(3,\)",
        ),
        (PAIR, [0], "ab", ExampleTypeError, r"cotangents\[0\]: expected numbers of shape"),
        (PAIR, [0], [[1], [1, 2]], ExampleTypeError, r"cotangents\[0\]: expected numbers of shape"),
        (PAIR, [0], [1, np.nan], ExampleError, r"cotangents\[0\]: expected finite numbers"),
        (COUNT, [0], 1, ExampleTypeError, r"expected None for a result of int64"),
        (VOID, [], 1, ExampleTypeError, r"expected None, as this part of the result is nothing"),
        (OBJECT, ["x"], 1, ExampleTypeError, r"expected None, as this part of the result is an object"),
        (TupleType((ONE, PAIR)), [0, 1], (1, [1]), ExampleError, r"cotangents\[0\]\[1\]: expected numbers"),
        (
            TupleType((ONE, ONE)),
            [0, 1],
            (1,),
            ExampleError,
            r"expected a tuple of 2 cotangents, or None, found 1",
        ),
        (TupleType((ONE, ONE)), [0, 1], 1.0, ExampleTypeError, r"expected a tuple of 2 cotangents, or None"),
        (SequenceType(ONE), [[0, 1]], [1], ExampleError, r"expected a sequence of 2 cotangents, or None"),
        (SequenceType(ONE), [[0, 1]], {}, ExampleTypeError, r"expected a sequence of 2 cotangents, or None"),
        (SequenceType(PAIR), [[0, 1]], [None, 1], ExampleError, r"cotangents\[0\]\[1\]: expected numbers"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_with_its_place(type_, held, cotangent, error, message):
    with pytest.raises(error, match=message) as caught:
        found(type_, held, cotangent)
    assert caught.value.fix


def test_there_is_one_for_each_example():
    seeds = seeds_of(SequenceType(ONE), [[[0, 1]], [[]], [[4]]], iter([[1, 2], None, [3]]))
    assert [[(n, float(g)) for n, g in pairs] for pairs in seeds] == [[(0, 1.0), (1, 2.0)], [], [(4, 3.0)]]
    with pytest.raises(ExampleError, match=r"cotangents: expected one for each of 2 examples, found 1"):
        seeds_of(ONE, [[0], [1]], [1])
    with pytest.raises(
        ExampleError, match=r"cotangents\[1\]: expected numbers of shape \(\), found shape \(1,\)"
    ):
        seeds_of(ONE, [[0], [1]], [1, [1]])
