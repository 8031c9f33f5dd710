"""Products by ids: one for each id where matrices are large, one for each row where they are small."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.numpy import grouped


@pytest.mark.parametrize("small", [0, 1 << 40], ids=["by id", "by row"])
@pytest.mark.parametrize("more", [(), (2,)])
@pytest.mark.parametrize("ids", [[], [2], [3, 0, 3, 3, 1, 0]], ids=str)
def test_each_row_is_multiplied_by_the_matrix_of_its_id(
    ids: list[int], more: tuple[int, ...], small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouped, "SMALL", small)
    rng = np.random.default_rng(0)
    chosen, table = np.array(ids, "int64"), rng.normal(size=(4, 5, 3))
    x, g = rng.normal(size=(len(ids), *more, 5)), rng.normal(size=(len(ids), *more, 3))
    out, sums = np.full(g.shape, np.nan), np.full(table.shape, np.nan)
    grouped.linear_by(x, table, chosen, out)
    grouped.sum_outer_by(x, g, chosen, sums)
    count = 2 if more else 1
    flat, flat_g = x.reshape(len(ids), count, 5), g.reshape(len(ids), count, 3)
    np.testing.assert_allclose(out.reshape(flat_g.shape), flat @ table[chosen], rtol=1e-12)
    expected = np.zeros_like(table)
    for i, a, b in zip(ids, flat, flat_g, strict=True):
        expected[i] += a.T @ b
    np.testing.assert_allclose(sums, expected, rtol=1e-12)
