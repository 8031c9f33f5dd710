"""Cotangents in the form of results become numbers of values, with the dtype of their results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foldbatch.engines.cotangents import numbered, seeds_of
from foldbatch.types import TensorType

PAIR = TensorType((2,), "float64")
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


# -- of a batch


def seeds(cotangents: Any) -> list[list[tuple[int, Any]]]:
    found = seeds_of(PAIR, [[3], [0], [8]], cotangents)
    return [[(number, g.tolist()) for number, g in of_example] for of_example in found]


def test_each_example_has_its_own_cotangents_or_none():
    right = [[(3, G)], [], [(8, H)]]
    assert seeds([G, None, H]) == seeds(iter((G, None, H))) == right
    assert seeds(np.array([G, H, G])) == [[(3, G)], [(0, H)], [(8, G)]]
    assert seeds_of(PAIR, [], []) == []
