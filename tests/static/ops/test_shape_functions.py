"""Functions that change shapes mean what NumPy's of the same name do."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from foldbatch.static import ops
from tests.static.ops.beside_numpy import CUBE, X, Y, check, run


def test_reshape_is_numpys() -> None:
    for shape in [6, -1, (6,), (3, 2), [3, -1], (-1, 1, 2), (1, 2, 3), (np.int64(2), 3)]:
        check(lambda x: ops.reshape(x, shape), lambda x: np.reshape(x, shape), X)


def test_reshape_of_nothing_is_numpys() -> None:
    check(lambda x: ops.reshape(x, (3, -1)), lambda x: np.reshape(x, (3, -1)), np.zeros((0, 2)))


def test_transpose_is_numpys() -> None:
    for axes in [None, *itertools.permutations(range(3)), (-1, 0, 1)]:
        check(lambda x: ops.transpose(x, axes), lambda x: np.transpose(x, axes), CUBE)


def test_the_transpose_of_a_vector_or_scalar_is_itself() -> None:
    check(lambda x: x.T, np.transpose, X[0])
    check(ops.transpose, np.transpose, X[0, 0])


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_expand_dims_and_squeeze_are_numpys(axis: int) -> None:
    check(lambda x: ops.expand_dims(x, axis), lambda x: np.expand_dims(x, axis), X)
    check(lambda x: ops.squeeze(x, axis), lambda x: np.squeeze(x, axis), np.expand_dims(X, axis))


@pytest.mark.parametrize("shape", [(2, 3), (4, 2, 3), [1, 2, 3]])
def test_broadcast_to_is_numpys(shape: Any) -> None:
    check(lambda x: ops.broadcast_to(x, shape), lambda x: np.broadcast_to(x, shape), X)
    check(lambda x: ops.broadcast_to(x, shape), lambda x: np.broadcast_to(x, shape), X[:, :1])


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_concat_stack_and_split_are_numpys(axis: int) -> None:
    check(lambda a, b: ops.concat([a, b, a], axis), lambda a, b: np.concatenate([a, b, a], axis), X, Y)
    check(lambda a, b: ops.stack([a, b], axis), lambda a, b: np.stack([a, b], axis), X, Y)
    check(lambda a: ops.concat([a], axis), lambda a: a, X)
    found = run(lambda a: ops.split(a, a.shape[axis], axis), X)
    for part, expected in zip(found, np.split(X, X.shape[axis], axis), strict=True):
        np.testing.assert_array_equal(part, expected)


def test_a_stack_has_an_axis_more() -> None:
    check(lambda a, b: ops.stack([a, b], 2), lambda a, b: np.stack([a, b], 2), X, Y)
