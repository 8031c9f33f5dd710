"""Compiled steps and checks against NumPy's."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.engines.numba.updates import UPDATES, sum_copies
from foldbatch.errors import ParameterError
from foldbatch.params import SparseRows
from foldbatch.train import SGD, AdaGrad, Adam, AdamW, LazyAdam, RMSprop
from foldbatch.train.gradients import WHOLE, fitting_gradient
from foldbatch.updates import Rule

DTYPES = st.sampled_from(["float32", "float64"])
LINES = (
    "g = g + decay * p",
    "mean = keep * mean + g",
    "q = mean * mean + square",
    "square = sqrt(q)",
    "p = p - q",
)
RULE = Rule(LINES, ("mean", "square"), ("decay", "keep"))
NUMBERS = (0.5, 0.9, 0.1)  # factor, decay, keep


def step(dtype):
    return UPDATES.step(RULE, np.dtype(dtype))


def faults(dtype):
    return UPDATES.faults(np.dtype(dtype))


class Parameters(dict):
    """Parameters by name, with the compiled loops of an engine, or none."""

    updates = None


@pytest.mark.numba
@pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
class TestCompiled:
    """With Numba."""

    def test_of_other_numbers_nothing_is_compiled(self) -> None:
        for dtype in ("float16", "int64", np.dtype("float32").newbyteorder()):
            assert step(dtype) is None

    @given(
        st.sampled_from(
            [
                SGD,
                partial(SGD, momentum=0.9, nesterov=True),
                AdaGrad,
                RMSprop,
                partial(RMSprop, momentum=0.9, centered=True),
                Adam,
                LazyAdam,
                AdamW,
            ]
        ),
        DTYPES,
        st.sampled_from([0.0, 0.01]),
        st.floats(-2, 2),
        st.integers(1, 90),
        st.integers(0, 2**32 - 1),
    )
    def test_steps_are_numpys(self, kind, dtype, decay, factor, width, seed) -> None:
        """To the last bit: dense, sparse, and a parameter that is no plain array of rows."""
        found = []
        for compiled in (True, False):
            rng = np.random.default_rng(seed)
            params = Parameters(
                {name: rng.normal(size=(20, width)).astype(dtype) for name in ("dense", "sparse")}
            )
            params.updates = UPDATES if compiled else None
            params["transposed"] = np.asfortranarray(rng.normal(size=(5, 4)).astype(dtype))
            optimizer = kind(0.1, weight_decay=decay)
            for _ in range(3):
                rows = np.flatnonzero(rng.random(20) < 0.4)
                values = rng.normal(size=(len(rows), width)).astype(dtype)
                gradients = {
                    "dense": rng.normal(size=(20, width)).astype(dtype),
                    "sparse": SparseRows(rows, values, (20, width)),
                    "transposed": rng.normal(size=(5, 4)).astype(dtype),
                }
                optimizer.update(params, gradients, scale=factor)
            found.append((params, optimizer.state()))
        for left, right in zip(*found, strict=True):
            for name in left:
                np.testing.assert_array_equal(left[name], right[name])

    @given(DTYPES, st.integers(0, 70), st.data())
    def test_a_step_of_rows_is_that_of_their_copies_put_back(self, dtype, width, data) -> None:
        """To the last bit, and other rows stay as they are."""
        rows = np.array(sorted(data.draw(st.sets(st.integers(0, 8)))), np.int64)
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
        tables = [rng.random((9, width)).astype(dtype) for _ in range(3)]
        values = rng.normal(size=(len(rows), width)).astype(dtype)
        copies, expected = [table[rows] for table in tables], [table.copy() for table in tables]
        loop = step(dtype)
        for p, mean, square, *where in ((*tables, rows, width), (*copies, WHOLE, values.size)):
            loop(p.reshape(-1), values.reshape(-1), mean.reshape(-1), square.reshape(-1), *where, *NUMBERS)
        for table, copy, whole in zip(tables, copies, expected, strict=True):
            whole[rows] = copy
            np.testing.assert_array_equal(table, whole)

    @given(DTYPES, st.lists(st.integers(-1, 5), max_size=4), st.integers(0, 2), st.data())
    def test_faults_are_those_that_numpy_finds(self, dtype, rows, width, data) -> None:
        rows, values = np.array(rows, np.int64), np.zeros((len(rows), width), dtype)
        if values.size:
            values.flat[-1] = data.draw(st.sampled_from([1, np.finfo(dtype).max, np.nan, np.inf, -np.inf]))
        gradient = SparseRows(rows, values, (5, width))
        outcomes = []
        for compiled in (True, False):
            try:
                fitting_gradient(
                    "w", np.zeros(gradient.shape, dtype), gradient, updates=UPDATES if compiled else None
                )
                outcomes.append("")
            except ParameterError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
        answer = np.empty(1, np.int64)
        faults(np.dtype(dtype))(values.reshape(-1), rows, 5, answer)
        assert answer[0] == bool(outcomes[0])

    @given(DTYPES, st.integers(1, 300), st.data())
    def test_a_fault_is_found_wherever_it_stands(self, dtype, size, data) -> None:
        values, answer = np.full(size, np.finfo(dtype).max), np.empty(1, np.int64)
        check = faults(np.dtype(dtype))
        check(values := values.astype(dtype), WHOLE, 1, answer)
        assert answer[0] == 0
        values[data.draw(st.integers(0, size - 1))] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
        check(values, WHOLE, 1, answer)
        assert answer[0] == 1

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_rows_are_summed_in_order(self, dtype) -> None:
        rng = np.random.default_rng(0)
        rows, order, starts = (
            rng.normal(size=(7, 3)).astype(dtype),
            rng.permutation(7),
            np.array([0, 2, 2, 7]),
        )
        out = np.empty((3, 3), dtype)
        sum_copies(dtype)(rows, starts, order, out)
        right = np.zeros_like(out)
        for i in range(3):
            for at in order[starts[i] : starts[i + 1]]:
                right[i] += rows[at]
        np.testing.assert_array_equal(out, right)
        assert sum_copies("int64") is None
