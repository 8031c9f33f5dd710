"""Products against NumPy's in float64: every form, shapes around the edges of tiles, no write beside the result."""

from itertools import product as pairs_of

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.engines.launch import Fields
from foldbatch.engines.numpy.spelling import rounded
from tests.backends import lacking_bf16, needs_llvm
from tests.engines.llvm.walking import call_native

pytestmark = needs_llvm
needs_bf16 = pytest.mark.skipif(bool(lacking_bf16()), reason=lacking_bf16())
DTYPES = {"f4": "float32", "f8": "float64"}
# around the rows and columns of tiles, and around blocks of the inner dimension
EXTENTS = st.sampled_from(
    [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 47, 48, 49, 63, 64, 95, 97, 127, 129, 200, 511, 513, 1030]
)


def matrix(rng: np.random.Generator, rows: int, columns: int, dtype: str, form: str):
    """Return a matrix that lies in memory by rows, by columns, or with gaps between rows or all numbers."""
    if form == "rows":
        return rng.standard_normal((rows, columns)).astype(dtype)
    if form == "columns":
        return rng.standard_normal((columns, rows)).astype(dtype).T
    if form == "apart":
        return rng.standard_normal((2 * rows, 3 * columns)).astype(dtype)[::2, ::3]
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


FORMS = st.sampled_from(["rows", "columns", "gaps", "apart"])


def check(
    product, kind: str, extents: tuple[int, int, int], forms: tuple[str, str], seed: int, factor=np.asarray
) -> None:
    (m, k, n), rng, dtype = extents, np.random.default_rng(seed), DTYPES[kind]
    a, b = matrix(rng, m, k, dtype, forms[0]), matrix(rng, k, n, dtype, forms[1])
    wide = np.full(
        (m, n + 2), np.nan, dtype
    )  # what was there must not matter, nor what lies beside be touched
    product(a, b, wide[:, 1:-1])
    right = factor(a).astype("float64") @ factor(b).astype("float64")
    error = 1e-6 if kind == "f4" else 4e-15
    np.testing.assert_allclose(wide[:, 1:-1], right, rtol=0, atol=error * 12 * max(k, 1) ** 0.5)
    assert np.isnan(wide[:, [0, -1]]).all()


@pytest.mark.parametrize("narrow", [False, True])  # registers of half the length, too
@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["f4", "f8"]),
    st.tuples(EXTENTS, EXTENTS, EXTENTS),
    st.tuples(FORMS, FORMS),
    st.integers(0, 99),
)
def test_a_product_is_numpys(narrow, kind, extents, forms, seed):
    from foldbatch.engines.llvm import tiles  # noqa: PLC0415 - it needs llvmlite

    cut = tiles.NARROW if narrow and tiles.blocks() else None
    check(native_product(kind, cut), kind, extents, forms, seed)


@needs_bf16
@settings(max_examples=150, deadline=None)
@given(st.tuples(EXTENTS, EXTENTS, EXTENTS), st.tuples(FORMS, FORMS), st.integers(0, 99))
def test_in_bfloat16_it_is_that_of_rounded_factors(extents, forms, seed):
    from foldbatch.engines.llvm.tiles import PAIRS  # noqa: PLC0415 - it needs llvmlite

    check(native_product("f4", PAIRS), "f4", extents, forms, seed, rounded)


@pytest.mark.parametrize("each", [1, pytest.param(2, marks=needs_bf16)])
@settings(max_examples=60, deadline=None)
@given(st.tuples(EXTENTS, EXTENTS, EXTENTS), st.booleans(), st.integers(0, 99))
def test_products_of_rows_told_one_by_one_are_numpys(each, extents, stores, seed):
    """Rows times a matrix, to rows; and rows times rows, also where all follow each other."""
    from foldbatch.engines.llvm import products, tiles  # noqa: PLC0415 - they need llvmlite

    if tiles.blocks() is None:
        pytest.skip("there are no tiles for this processor")
    (m, k, n), rng = extents, np.random.default_rng(seed)
    cut, factor = (tiles.PAIRS, rounded) if each == 2 else (tiles.blocks(), np.asarray)
    fields = np.zeros(Fields.size, np.int64)
    fields[Fields.stores], tolerance = stores, 12e-6 * max(m, k, 1) ** 0.5
    a, b, c = (matrix(rng, *shape, "float32", "rows") for shape in ((m + 3, k), (k, n), (m + 5, n)))
    a_rows, c_rows = rng.integers(0, m + 3, m), rng.permutation(m + 5)[:m]
    expected, found = c.astype("float64"), c.copy()
    expected[c_rows] = factor(a)[a_rows].astype("float64") @ factor(b) + (0 if stores else c[c_rows])
    function = products.compiled(products.rows_text, "f4", cut)
    call_native(function, m, [a, a_rows, b, found, c_rows, fields], [k, n, k, n, 1, n, 0])
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    g, g_rows, out = matrix(rng, m + 2, n, "float32", "rows"), rng.integers(0, m + 2, m), b.copy()
    expected = factor(a)[a_rows].astype("float64").T @ factor(g)[g_rows] + (0 if stores else b)
    function = products.compiled(products.outer_text, "f4", cut)
    call_native(function, m, [a, a_rows, g, g_rows, out, fields], [k, n, k, n, n])
    np.testing.assert_allclose(out, expected, rtol=0, atol=tolerance)
    expected = factor(a)[:m].astype("float64").T @ factor(g)[:m] + (0 if stores else b)
    function, out = products.compiled(products.sum_outer_text, "f4", cut), b.copy()
    call_native(function, m, [a, g, out], [1, k, 1, n, 3, 1, k, n, 1, n, 0, 0, 0, 0 if stores else 2])
    np.testing.assert_allclose(out, expected, rtol=0, atol=tolerance)


def test_nothing_is_made_of_what_is_not_finite_elsewhere() -> None:
    """Columns beyond the last are not read, and rows keep to themselves."""
    from foldbatch.engines.llvm.tiles import PAIRS  # noqa: PLC0415 - it needs llvmlite

    a, b = np.ones((99, 70), "float32"), np.ones((70, 50), "float32")
    a[4], b[:, 49] = np.nan, np.inf
    cuts = [None] if lacking_bf16() else [None, PAIRS]
    # few rows, and as many as a panel is copied for
    lefts = a[:9], np.asfortranarray(a[:9]), a, np.asfortranarray(a)
    for cut, left, right in pairs_of(cuts, lefts, (b, np.asfortranarray(b))):
        out = np.empty((len(left), 50), "float32")
        native_product("f4", cut)(left, right, out)
        assert np.isnan(out[4]).all()
        assert (np.delete(out, 4, 0)[:, :49] == 70).all()
        assert np.isposinf(np.delete(out, 4, 0)[:, 49]).all()
