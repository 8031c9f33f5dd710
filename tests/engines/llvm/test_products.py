"""Products against NumPy's in float64: every form, shapes around the edges of tiles, no write beside the result."""

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engines.llvm.walking import call_native

pytestmark = [
    pytest.mark.llvm,
    pytest.mark.skipif(find_spec("llvmlite") is None, reason="llvmlite is not installed"),
]
DTYPES = {"f4": "float32", "f8": "float64"}
# around the rows and columns of tiles, and around blocks of the inner dimension
EXTENTS = st.sampled_from(
    [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 47, 48, 49, 63, 64, 95, 97, 127, 129, 200, 511, 513, 1030]
)


def matrix(rng: np.random.Generator, rows: int, columns: int, dtype: str, form: str):
    """Return a matrix that lies in memory by rows, by columns, or with gaps."""
    if form == "rows":
        return rng.standard_normal((rows, columns)).astype(dtype)
    if form == "columns":
        return rng.standard_normal((columns, rows)).astype(dtype).T
    return rng.standard_normal((rows, columns + 5)).astype(dtype)[:, 2 : 2 + columns]


def native_product(kind: str, cut=None):
    """Return the product that instructions call, as a function of arrays; of no cut it is this processor's."""
    from foldbatch.engines.llvm import products, tiles  # noqa: PLC0415 - it needs llvmlite

    cut = tiles.blocks() if cut is None else cut
    function = products.compiled(products.native_text, kind, cut or None)

    def product(a, b, c) -> None:
        strides = [stride // a.itemsize for array in (a, b) for stride in array.strides]
        statics = [1, 1, a.shape[1], b.shape[1], 2, *strides, c.strides[0] // a.itemsize, 0, 0, 0, 0]
        call_native(function, len(a), [a, b, c], statics)

    return product


FORMS = st.sampled_from(["rows", "columns", "gaps"])


def check(product, kind: str, extents: tuple[int, int, int], forms: tuple[str, str], seed: int) -> None:
    (m, k, n), rng, dtype = extents, np.random.default_rng(seed), DTYPES[kind]
    a, b = matrix(rng, m, k, dtype, forms[0]), matrix(rng, k, n, dtype, forms[1])
    wide = np.full(
        (m, n + 2), np.nan, dtype
    )  # what was there must not matter, nor what lies beside be touched
    product(a, b, wide[:, 1:-1])
    right = a.astype("float64") @ b.astype("float64")
    error = 1e-6 if kind == "f4" else 4e-15
    np.testing.assert_allclose(wide[:, 1:-1], right, rtol=0, atol=error * 12 * max(k, 1) ** 0.5)
    assert np.isnan(wide[:, [0, -1]]).all()


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["f4", "f8"]),
    st.tuples(EXTENTS, EXTENTS, EXTENTS),
    st.tuples(FORMS, FORMS),
    st.integers(0, 99),
)
def test_a_product_is_numpys(
    kind: str, extents: tuple[int, int, int], forms: tuple[str, str], seed: int
) -> None:
    check(native_product(kind), kind, extents, forms, seed)


def test_nothing_is_made_of_what_is_not_finite_elsewhere() -> None:
    """Columns beyond the last are not read, and rows keep to themselves."""
    a, b = np.ones((9, 70), "float32"), np.ones((70, 50), "float32")
    a[4], b[:, 49] = np.nan, np.inf
    for left, right in ((a, b), (a, np.asfortranarray(b))):
        out = np.empty((9, 50), "float32")
        native_product("f4")(left, right, out)
        assert np.isnan(out[4]).all()
        assert (np.delete(out, 4, 0)[:, :49] == 70).all()
        assert np.isposinf(np.delete(out, 4, 0)[:, 49]).all()
