"""Cotangents in the form of results become numbers of values; what has another form is refused, and told where."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from foldbatch.engines.cotangents import numbered, seeds_of
from foldbatch.errors import ExampleError, ExampleTypeError
from foldbatch.types import OBJECT, VOID, BroadcastType, SequenceType, TensorType, TupleType

ONE, PAIR, INTEGER = TensorType(()), TensorType((2,), "float64"), TensorType((), "int32")
BOTH = TupleType((PAIR, ONE))
G, H = [0.5, -1.0], [3.0, 4.0]  # cotangents of a pair


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "given", [[1, 2], np.array([1, 2], "int8"), np.array([1.0, 2.0], "float16")], ids=repr
)
def test_cotangents_have_the_dtype_of_their_result(dtype, given):
    ((_, g),) = numbered(TensorType((2,), dtype), iter([0]), given, "here")
    assert (g.dtype, g.tolist()) == (np.dtype(dtype), [1.0, 2.0])


def test_cotangents_are_copied():
    given = np.ones(2)
    ((_, g),) = numbered(PAIR, iter([0]), given, "here")
    given[:] = 5
    assert g.tolist() == [1.0, 1.0]


FORM, SHAPE = "give it the form of the result", "give an array of the result's shape"
WRONG = [
    (VOID, [], 0.0, ExampleTypeError, "here: expected None, as this part of the result is nothing, found float 0.0; leave it out"),
    (OBJECT, ["x"], "x", ExampleTypeError, "here: expected None, as this part of the result is an object, found str 'x'; leave it out"),
    (INTEGER, [0], 1, ExampleTypeError, "here: expected None for a result of int32, found int 1; give None: only floats have derivatives"),
    (ONE, [0], "1.0", ExampleTypeError, f"here: expected numbers of shape (), found str '1.0'; {SHAPE}"),
    (ONE, [0], 1j, ExampleTypeError, f"here: expected numbers of shape (), found complex; {SHAPE}"),
    (ONE, [0], {}, ExampleTypeError, f"here: expected numbers of shape (), found dict with keys []; {SHAPE}"),
    (PAIR, [0], [1.0, None], ExampleTypeError, f"here: expected numbers of shape (2,), found list of 2; {SHAPE}"),
    (PAIR, [0], [[1.0], [1.0, 2.0]], ExampleTypeError, f"here: expected numbers of shape (2,), found list of 2; {SHAPE}"),
    (PAIR, [0], [1.0, 2.0, 3.0], ExampleError, f"here: expected numbers of shape (2,), found shape (3,); {SHAPE}"),
    (PAIR, [0], 1.0, ExampleError, f"here: expected numbers of shape (2,), found shape (); {SHAPE}"),
    (ONE, [0], np.nan, ExampleError, "here: expected finite numbers, found NaN or infinity; look at what computes the cotangent"),
    (PAIR, [0], [np.inf, 0.0], ExampleError, "here: expected finite numbers, found NaN or infinity; look at what computes the cotangent"),
    (ONE, [0], np.array(1e300), ExampleError, "here: expected finite numbers, found NaN or infinity; look at what computes the cotangent"),
    (BOTH, [0, 1], G, ExampleError, "here[0]: expected numbers of shape (2,), found shape (); " + SHAPE),
    (BOTH, [0, 1], (G, 1.0, 2.0), ExampleError, f"here: expected a tuple of 2 cotangents, or None, found 3 of them; {FORM}"),
    (BOTH, [0, 1], {"a": G, "b": 1.0}, ExampleTypeError, f"here: expected a tuple of 2 cotangents, or None, found dict with keys ['a', 'b']; {FORM}"),
    (BOTH, [0, 1], 1.0, ExampleTypeError, f"here: expected a tuple of 2 cotangents, or None, found float 1.0; {FORM}"),
    (BOTH, [0, 1], np.array(1.0), ExampleTypeError, f"here: expected a tuple of 2 cotangents, or None, found float64 array of shape (); {FORM}"),
    (SequenceType(PAIR), [[0]], [], ExampleError, f"here: expected a sequence of 1 cotangents, or None, found 0 of them; {FORM}"),
    (SequenceType(PAIR), [[0]], "g", ExampleTypeError, f"here: expected a sequence of 1 cotangents, or None, found str 'g'; {FORM}"),
    (SequenceType(BOTH), [[(0, 1), (2, 3)]], [None, (G, G)], ExampleError, f"here[1][1]: expected numbers of shape (), found shape (2,); {SHAPE}"),
    (TupleType((BroadcastType(PAIR),)), [0], [[1.0]], ExampleError, f"here[0]: expected numbers of shape (2,), found shape (1,); {SHAPE}"),
]  # fmt: skip


def test_what_does_not_fit_is_told_with_its_place_and_what_to_do():
    for type_, held, cotangent, error, message in WRONG:
        with pytest.raises(ExampleError, match=f"^{re.escape(message)}$") as caught:
            list(numbered(type_, iter(held), cotangent, "here"))
        assert type(caught.value) is error


# -- of a batch


def seeds(cotangents: Any) -> list[list[tuple[int, Any]]]:
    found = seeds_of(PAIR, [[3], [0], [8]], cotangents)
    return [[(number, g.tolist()) for number, g in of_example] for of_example in found]


def test_each_example_has_its_own_cotangents_or_none():
    right = [[(3, G)], [], [(8, H)]]
    assert seeds([G, None, H]) == seeds(iter((G, None, H))) == right
    assert seeds(np.array([G, H, G])) == [[(3, G)], [(0, H)], [(8, G)]]
    assert seeds_of(PAIR, [], []) == []
