"""Compiled steps against NumPy's."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from foldbatch.params import SparseRows
from foldbatch.static.backends import BACKENDS
from foldbatch.train import Adam, LazyAdam
from foldbatch.train.compiled import adam


def test_nothing_is_compiled_where_numba_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    assert adam("float32") is None


@pytest.mark.numba
@pytest.mark.skipif("numba" not in BACKENDS, reason="numba is not installed")
class TestCompiled:
    """With Numba."""

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("kind", [Adam, LazyAdam])
    def test_steps_are_numpys(self, kind: type[Adam], dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Dense, sparse, with weight decay, and a parameter that is no plain array of rows."""
        import numba  # noqa: F401, PLC0415 - optional

        found = []
        for loop in (adam, lambda dtype: None):
            monkeypatch.setattr("foldbatch.train.optimizers.adam", loop)
            rng = np.random.default_rng(0)
            params = {name: rng.normal(size=(40, 7)).astype(dtype) for name in ("dense", "sparse")}
            params["transposed"] = np.asfortranarray(rng.normal(size=(5, 4)).astype(dtype))
            optimizer = kind(0.1, weight_decay=0.01)
            for _ in range(3):
                rows = np.sort(rng.permutation(40)[:6])
                optimizer.update(
                    params,
                    {
                        "dense": rng.normal(size=(40, 7)).astype(dtype),
                        "sparse": SparseRows(rows, rng.normal(size=(6, 7)).astype(dtype), (40, 7)),
                        "transposed": rng.normal(size=(5, 4)).astype(dtype),
                    },
                )
            found.append((params, optimizer.state()))
        assert adam(dtype) is not None
        for name in found[0][0]:
            np.testing.assert_allclose(found[0][0][name], found[1][0][name], rtol=1e-5)
        for key, value in found[0][1].items():
            np.testing.assert_allclose(value, found[1][1][key], rtol=1e-5, atol=1e-8)
