"""Products against NumPy's in float64: every form, shapes around the edges of tiles, no write beside the result."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.engines.launch import FIELDS, FIRST, STORES
from tests.engines.llvm.walking import run_native

pytestmark = [
    pytest.mark.llvm,
    pytest.mark.skipif(find_spec("llvmlite") is None, reason="llvm is not installed"),
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


def product_of(kind: str):
    from foldbatch.engines.llvm.products import by_arrays  # noqa: PLC0415 - it needs llvmlite

    return by_arrays(kind)


def native_product(kind: str, cut=None):
    """Return the product that instructions call, as a function of arrays; of no cut it is this processor's."""
    from foldbatch.engines.llvm import products  # noqa: PLC0415 - it needs llvmlite

    cut = products.blocks() if cut is None else cut
    more = {"more": products.functions_of(kind, cut), "source": products.source()} if cut else {}
    text = products.native_text(kind, cut or None)

    def product(a, b, c) -> None:
        strides = [stride // a.itemsize for array in (a, b) for stride in array.strides]
        statics = [1, 1, a.shape[1], b.shape[1], 2, *strides, c.strides[0] // a.itemsize, 0, 0, 0, 0]
        run_native(text, len(a), [a, b, c], statics, **more)

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
    check(product_of(kind), kind, extents, forms, seed)


@pytest.mark.parametrize("name", ["WIDE", "NARROW", "plain loops"])
def test_every_cut_is_right(name: str) -> None:
    """Also those for other processors than this: vectors of any length compile everywhere."""
    from foldbatch.engines.llvm import products  # noqa: PLC0415 - it needs llvmlite

    product = native_product("f4", getattr(products, name, False))
    rng = np.random.default_rng(0)
    for i in range(120):
        extents = tuple(int(x) for x in rng.choice([1, 2, 3, 4, 7, 8, 9, 25, 64, 100, 300], 3))
        forms = tuple(str(x) for x in rng.choice(["rows", "columns", "gaps"], 2))
        check(product, "f4", extents, forms, i)  # type: ignore[arg-type]


@pytest.mark.parametrize("blocked", [True, False])
@pytest.mark.parametrize("adds", [0, 1, 2])
def test_products_one_after_the_other(adds: int, blocked: bool) -> None:
    """Each in its place, or added up; of no rows they are zero, or nothing is added."""
    from foldbatch.engines.llvm import products  # noqa: PLC0415 - it needs llvmlite

    cut = products.blocks() if blocked else None
    more = {"more": products.functions_of("f8", cut), "source": products.source()} if cut else {}
    text, rng = products.native_text("f8", cut), np.random.default_rng(0)
    a, b = rng.normal(size=(3, 5, 7)), rng.normal(size=(3, 7, 9))
    c = np.ones((3, 5, 9))
    statics = [1, 5, 7, 9, 1, 7, 1, 9, 1, 9, 35, 63, 0 if adds else 45, adds]
    run_native(text, 3, [a, b, c], statics, **more)
    if adds:
        np.testing.assert_allclose(c[0], (a @ b).sum(0) + (adds == 2))
        assert (c[1:] == 1).all()
    else:
        np.testing.assert_allclose(c, a @ b)
    run_native(text, 0, [a, b, c], [1, 5, 1, 9, 3, *statics[5:]], **more)
    assert (c[0] == 0).all() == (adds != 2)


def blocked(kind: str):
    """Return the module, how it cuts products here, and what the texts of rows call; else skip the test."""
    from foldbatch.engines.llvm import products  # noqa: PLC0415 - it needs llvmlite

    cut = products.blocks()
    if cut is None:
        pytest.skip("rows are multiplied by processors that are known")
    return products, cut, {"more": products.functions_of(kind, cut), "source": products.source()}


def launch_fields(*, stores: bool, first: int = 0):
    fields = np.zeros(FIELDS, np.int64)
    fields[STORES], fields[FIRST] = stores, first
    return fields


@pytest.mark.parametrize(("first", "always"), [(-1, 0), (0, 1), (-1, 1)])
def test_rows_of_a_result_that_repeat_are_added_one_after_the_other(first: int, always: int) -> None:
    """Unless it is said that they do not; what is always added is added to what would be stored, too."""
    products, cut, more = blocked("f8")
    rng = np.random.default_rng(0)
    a, b, out = rng.normal(size=(9, 20)), rng.normal(size=(20, 30)), np.ones((4, 30))
    a_rows, c_rows = np.array([0, 3, 8, 5]), np.array([1, 0, 3, 2] if always else [1, 1, 3, 1])
    right = np.ones((4, 30))
    np.add.at(right, c_rows, a[a_rows] @ b)
    fields = launch_fields(stores=bool(always), first=first)
    text = products.rows_text("f8", cut)
    run_native(text, 4, [a, a_rows, b, out, c_rows, fields], [20, 30, 20, 30, 1, 30, always], **more)
    np.testing.assert_allclose(out, right)


COUNTS = st.sampled_from([0, 1, 2, 3, 7, 8, 9, 31, 33, 95, 97, 127, 129, 200, 330])
SIZES = st.sampled_from([1, 2, 5, 16, 49, 64, 97, 150])


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["f4", "f8"]),
    COUNTS,
    SIZES,
    SIZES,
    FORMS,
    st.booleans(),
    st.booleans(),
    st.integers(0, 99),
)
def test_rows_are_multiplied_where_they_lie(
    kind: str, count: int, k: int, n: int, form: str, adds: bool, gaps: bool, seed: int
) -> None:
    """Rows of the first factor may repeat; those of the result that are not told stay as they are."""
    products, cut, more = blocked(kind)
    rng, dtype = np.random.default_rng(seed), DTYPES[kind]
    a, b = matrix(rng, count + 3, k, dtype, "gaps" if gaps else "rows"), matrix(rng, k, n, dtype, form)
    whole = rng.standard_normal((count + 5, n)).astype(dtype)
    a_rows, c_rows = rng.integers(0, len(a), count), rng.permutation(len(whole))[:count]
    right, out = whole.astype("float64"), whole.copy()
    right[c_rows] = a[a_rows].astype("float64") @ b.astype("float64") + (right[c_rows] if adds else 0)
    text, fields = products.rows_text(kind, cut), launch_fields(stores=not adds)
    strides = [stride // a.itemsize for stride in (a.strides[0], *b.strides, out.strides[0])]
    run_native(text, count, [a, a_rows, b, out, c_rows, fields], [k, n, *strides, 0], **more)
    error = 1e-6 if kind == "f4" else 4e-15
    np.testing.assert_allclose(out, right, rtol=0, atol=error * 12 * k**0.5)
    untold = np.delete(np.arange(len(whole)), c_rows)
    np.testing.assert_array_equal(out[untold], whole[untold])


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["f4", "f8"]),
    st.sampled_from([0, 1, 2, 9, 127, 128, 129, 300]),
    st.sampled_from([1, 5, 8, 150, 319, 330]),
    st.sampled_from([1, 30, 48, 49, 750, 770]),
    st.booleans(),
    st.integers(0, 99),
)
def test_outer_products_of_rows_are_summed(kind: str, k: int, m: int, n: int, adds: bool, seed: int) -> None:
    products, cut, more = blocked(kind)
    rng, dtype = np.random.default_rng(seed), DTYPES[kind]
    a, b = matrix(rng, k + 2, m, dtype, "gaps"), matrix(rng, k + 1, n, dtype, "rows")
    a_rows, b_rows = rng.integers(0, len(a), k), rng.integers(0, len(b), k)
    wide = np.full((m, n + 2), np.nan, dtype)
    wide[:, 1:-1] = 1.0 if adds else np.nan
    text, fields = products.outer_text(kind, cut), launch_fields(stores=not adds)
    strides = [array.strides[0] // a.itemsize for array in (a, b, wide)]
    run_native(text, k, [a, a_rows, b, b_rows, wide[:, 1:-1], fields], [m, n, *strides], **more)
    right = a[a_rows].astype("float64").T @ b[b_rows].astype("float64") + adds
    error = 1e-6 if kind == "f4" else 4e-15
    np.testing.assert_allclose(wide[:, 1:-1], right, rtol=0, atol=error * 12 * max(k, 1) ** 0.5)
    assert np.isnan(wide[:, [0, -1]]).all()


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
