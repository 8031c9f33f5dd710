"""Compiled steps and checks against NumPy's."""

from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.engines.llvm.updates import Compiled, sum_copies
from foldbatch.errors import ParameterError
from foldbatch.params.parameters import Change, Rule, SparseRows
from foldbatch.train import SGD, AdaGrad, Adam, AdamW, LazyAdam, RMSprop
from foldbatch.train.optimizer import check_numbers

DTYPES = st.sampled_from(["float32", "float64"])
LINES = (
    "g = g + decay * p",
    "mean = keep * mean + g",
    "q = mean * mean + square",
    "square = sqrt(q)",
    "p = p - q",
)
RULE = Rule(LINES, ("mean", "square"), ("decay", "keep"))


def change(tables, gradient):
    p, *moments = tables
    return Change("w", p, moments, gradient, 0.5, RULE, (0.9, 0.1), True)


class Parameters(dict):
    """Parameters by name, with the compiled loops of an engine, or none."""

    updates = None


@pytest.mark.llvm
@pytest.mark.skipif(find_spec("llvmlite") is None, reason="llvmlite is not installed")
class TestCompiled:
    """With llvmlite."""

    def test_what_compiled_code_cannot_read_is_left_as_it_is(self) -> None:
        for dtype in ("float16", np.dtype("float32").newbyteorder()):
            tables = [np.ones((4, 3), dtype) for _ in range(3)]
            left = change(tables, np.ones((4, 3), dtype))
            assert Compiled().apply([left], None) == [left]
            assert not Compiled().good([left.gradient])
            assert all((table == 1).all() for table in tables)
        wide = [np.ones((4, 6), "float32") for _ in range(3)]
        for tables, gradient in (
            ([table[:, ::2] for table in wide], np.ones((4, 3), "float32")),
            ([np.ones((4, 3), "float32")] * 3, wide[0][:, ::2]),
            (
                [np.ones((4, 3), "float32")] * 3,
                SparseRows(np.array([1], np.int32), wide[0][:1, :3].copy(), (4, 3)),
            ),
        ):
            left = change(tables, gradient)
            assert Compiled().apply([left], None) == [left]

    @given(
        st.sampled_from(
            [
                SGD,
                partial(SGD, momentum=0.9, nesterov=True),
                AdaGrad,
                RMSprop,
                partial(RMSprop, momentum=0.9),
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
            params.updates = Compiled() if compiled else None
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
        assert not Compiled().apply(
            [change(tables, SparseRows(rows, values, (9, width))), change(copies, values)], None
        )
        for table, copy, whole in zip(tables, copies, expected, strict=True):
            whole[rows] = copy
            np.testing.assert_array_equal(table, whole)

    @given(DTYPES, st.lists(st.integers(-1, 5), max_size=4), st.integers(0, 2), st.data())
    def test_faults_are_those_that_numpy_finds(self, dtype, rows, width, data) -> None:
        rows, values = np.array(rows, np.int64), np.zeros((len(rows), width), dtype)
        if values.size:
            values.flat[-1] = data.draw(st.sampled_from([1, np.finfo(dtype).max, np.nan, np.inf, -np.inf]))
        gradient = SparseRows(rows, values, (5, width))
        tables, fault = [np.ones((5, width), dtype) for _ in range(3)], False
        try:
            check_numbers([("w", gradient)])
        except ParameterError:
            fault = True
        asked = []
        Compiled().apply([change(tables, gradient)], asked.append)
        assert asked == [[]] + [[change(tables, gradient)]] * fault
        assert Compiled().good([gradient]) == (not fault)
        assert not fault or all((table == 1).all() for table in tables)

    @given(DTYPES, st.integers(1, 300), st.data())
    def test_a_fault_is_found_wherever_it_stands(self, dtype, size, data) -> None:
        good = [np.full(n, np.finfo(dtype).max, dtype) for n in (3, size)]
        assert Compiled().good(good)
        good[1][data.draw(st.integers(0, size - 1))] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
        assert not Compiled().good(good)

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_with_a_helper_no_bit_changes(self, dtype, monkeypatch) -> None:
        """Large tables are cut into parts; a fault in any of them is found."""
        from foldbatch.engines.llvm import team, updates  # noqa: PLC0415 - they need llvmlite

        fresh, rng = team.Team(), np.random.default_rng(0)
        monkeypatch.setattr(team, "available_cores", lambda: 2)
        monkeypatch.setattr(team, "MIN_REST", 0.0)
        monkeypatch.setattr(team, "team", lambda: fresh)
        sizes, rows = (9 * updates.PART_WORK + 3, updates.PART_WORK, 7), np.arange(0, 900, 2)
        gradients = [rng.normal(size=n).astype(dtype) for n in sizes]
        gradients.append(SparseRows(rows, rng.normal(size=(len(rows), 200)).astype(dtype), (900, 200)))
        start = [[rng.random(g.shape).astype(dtype) for _ in range(3)] for g in gradients]
        results = []
        for helped in (False, True):
            updates, changes = Compiled(), []
            updates.helped = helped
            for tables, gradient in zip(start, gradients, strict=True):
                changes.append(change([table.copy() for table in tables], gradient))
            for _ in range(3):
                assert updates.good(gradients)
                assert not updates.apply(changes, None)
            results.append([table for one in changes for table in (one.parameter, *one.moments)])
        assert fresh.jobs > 0
        for left, right in zip(*results, strict=True):
            np.testing.assert_array_equal(left, right)
        gradients[0][-1] = np.nan
        assert not updates.good(gradients)

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
