"""Sorting and running sums are NumPy's, ties, infinities and NaN too, and their gradients go where elements went."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.static import ops
from tests.backends import TESTED
from tests.static.ops.beside_numpy import CUBE, run

ODD = np.array([[2.0, np.nan, 1, 2], [np.inf, 1, -np.inf, 1], [np.nan, np.nan, 0, -0.0]])
WHOLE = np.array([[3, 1, 3, 2]], "int32")


@pytest.mark.parametrize("axis", [-1, 0])
def test_sorting_is_numpys(axis):
    for x in [CUBE, ODD, WHOLE, np.zeros((2, 1))]:
        np.testing.assert_array_equal(
            run(lambda x: ops.argsort(x, axis), x), np.argsort(x, axis, kind="stable")
        )
        np.testing.assert_array_equal(run(lambda x: ops.sort(x, axis), x), np.sort(x, axis))


@pytest.mark.parametrize("x", [CUBE, ODD[:2], WHOLE])
def test_the_greatest_are_the_last_of_the_sorted(x):
    values, indices = run(lambda x: ops.topk(x, 2), x)
    np.testing.assert_array_equal(values, np.sort(x, -1)[..., ::-1][..., :2])
    np.testing.assert_array_equal(values, np.take_along_axis(x, indices, -1))
    first, second = run(lambda x: ops.topk(x, 2), np.array([1.0, 1, 1]))[1]
    assert (first, second) == (0, 1)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_running_sums_are_numpys(axis):
    np.testing.assert_allclose(run(lambda x: ops.cumsum(x, axis), CUBE), np.cumsum(CUBE, axis), rtol=1e-13)
    late = np.array([1, 2, np.inf, 3])
    np.testing.assert_array_equal(run(np.cumsum, late), np.cumsum(late))  # it spoils no sum before it


@pytest.mark.parametrize("axis", [None, 0, (1, 2)])
def test_norms_are_numpys(axis):
    wanted = np.sqrt(np.sum(CUBE**2, axis))
    np.testing.assert_allclose(run(lambda x: ops.norm(x, axis), CUBE), wanted, rtol=1e-13)


@pytest.mark.parametrize("backend", ["reference", TESTED])
def test_gradients_go_where_elements_went(backend):
    weight = fb.Parameter([4], init=[2.0, -1, 5, 0], name="w")

    def loss(x):
        values, _ = ops.topk(weight, 2)
        ordered = ops.sort(weight) * np.array([1, 10, 100, 1000], "float32")
        running = np.cumsum(weight)
        return ordered.sum() + (values * np.array([7, 9], "float32")).sum() + running.sum() + ops.norm(x)

    program = fb.compile(fb.Vector(2) >> fb.Function(loss) >> fb.Loss(), backend)
    value, gradients = program.value_and_grad([[0, 0]])
    assert value == -1 + 0 + 200 + 5000 + 35 + 18 + 15
    np.testing.assert_array_equal(gradients["w"], [100 + 9 + 4, 1 + 3, 1000 + 7 + 2, 10 + 1])
    (found,) = program.vjp([[0.0, 0.0]], inputs=True).inputs.values()
    np.testing.assert_array_equal(found.values, [[0, 0]])  # of a norm that is 0
