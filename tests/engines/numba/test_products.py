"""Products against NumPy's in float64: every form, shapes around the edges of tiles, no write beside the result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.engines.numba.loop_compiler import called_by
from foldbatch.static import ops
from foldbatch.static.backends import BACKENDS
from foldbatch.static.graph import Graph, apply, input_node
from foldbatch.types import TensorType
from tests.static.run_kernel import compile_graph

pytestmark = [
    pytest.mark.numba,
    pytest.mark.skipif("numba" not in BACKENDS, reason="numba is not installed"),
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


def called(name: str, kind: str):
    return called_by(f"{name}_{kind}(x, p0, s0)")[f"{name}_{kind}"]


def product_of(kind: str):
    return called("product", kind)


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
    check(product_of(kind), kind, extents, forms, seed)


@pytest.mark.parametrize("name", ["WIDE", "NARROW"])
def test_every_cut_is_right(name: str) -> None:
    """Also the one for other processors than this: vectors of any length compile everywhere."""
    from numba import njit, types  # noqa: PLC0415 - optional

    from foldbatch.engines.numba import products, vector_functions  # noqa: PLC0415 - they need Numba

    scope = {**vector_functions.GLOBALS, **products.functions("f4", getattr(products, name))}
    exec(products.spell("product", "f4", getattr(products, name)), scope)
    read, written = (types.Array(types.float32, 2, "A", readonly=r) for r in (True, False))
    product = njit(types.void(read, read, written), **vector_functions.OPTIONS)(scope["loop"])
    rng = np.random.default_rng(0)
    for i in range(120):
        extents = tuple(int(x) for x in rng.choice([1, 2, 3, 4, 7, 8, 9, 25, 64, 100, 300], 3))
        forms = tuple(str(x) for x in rng.choice(["rows", "columns", "gaps"], 2))
        check(product, "f4", extents, forms, i)  # type: ignore[arg-type]


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
    rng, dtype = np.random.default_rng(seed), DTYPES[kind]
    a, b = matrix(rng, count + 3, k, dtype, "gaps" if gaps else "rows"), matrix(rng, k, n, dtype, form)
    whole = rng.standard_normal((count + 5, n)).astype(dtype)
    a_rows, c_rows = rng.integers(0, len(a), count), rng.permutation(len(whole))[:count]
    right, out = whole.astype("float64"), whole.copy()
    right[c_rows] = a[a_rows].astype("float64") @ b.astype("float64") + (right[c_rows] if adds else 0)
    called("product_rows", kind)(a, a_rows, b, out, c_rows + 7, 7, int(adds))
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
    rng, dtype = np.random.default_rng(seed), DTYPES[kind]
    a, b = matrix(rng, k + 2, m, dtype, "gaps"), matrix(rng, k + 1, n, dtype, "rows")
    a_rows, b_rows = rng.integers(0, len(a), k), rng.integers(0, len(b), k)
    wide = np.full((m, n + 2), np.nan, dtype)
    wide[:, 1:-1] = 1.0 if adds else np.nan
    called("outer_rows", kind)(a, a_rows, b, b_rows, wide[:, 1:-1], int(adds))
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
        product_of("f4")(left, right, out)
        assert np.isnan(out[4]).all()
        assert (np.delete(out, 4, 0)[:, :49] == 70).all()
        assert np.isposinf(np.delete(out, 4, 0)[:, 49]).all()


def test_kernels_call_it_where_a_weight_meets_rows() -> None:
    x = input_node(TensorType((3,)))
    matrices = input_node(TensorType((2, 3)))
    for node, ours in (
        (apply("sum_outer", x, ops.tanh(x)), True),
        (apply("matmul", matrices, apply("transpose", matrices, axes=(1, 0))), False),
    ):
        source = compile_graph(
            Graph(tuple(dict.fromkeys([x, matrices])), (node,)), (), BACKENDS["numba"]
        ).source
        assert ("product_f4(" in source) == ours
        assert ("np.matmul(" in source) != ours


def test_unknown_processors_multiply_by_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    from foldbatch.engines.numba import products  # noqa: PLC0415 - it needs Numba

    monkeypatch.setattr(products, "blocks", lambda: None)
    x = input_node(TensorType((3,)))
    source = compile_graph(Graph((x,), (apply("sum_outer", x, ops.tanh(x)),)), (), BACKENDS["numba"]).source
    assert "np.matmul(" in source
    assert "product_f4(" not in source
