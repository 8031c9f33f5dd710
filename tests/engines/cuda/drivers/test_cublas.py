"""Products by cuBLAS: the same numbers as the emulator's, for any way that matrices may lie."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from foldbatch.engines.cuda.cupy_driver import (
    COMPUTE,
    COMPUTE_F8,
    KINDS,
    WORKSPACE,
    Blas,
    as_columns,
    load_driver,
    stretches,
)
from foldbatch.engines.cuda.driver import MatrixProduct
from foldbatch.errors import BackendError
from tests.engines.cuda import stand_in
from tests.engines.cuda.emulated import gpu_answers
from tests.engines.cuda.emulator import Emulator

on_card = [pytest.mark.gpu, pytest.mark.skipif(not gpu_answers(), reason="there is no GPU")]
DRIVERS = [
    pytest.param(lambda: stand_in.driver()[0], id="stand-in"),
    pytest.param(load_driver, id="card", marks=on_card),
]


def some_product(
    rng: np.random.Generator, memory: int, dtype: str, *, empty: bool = False
) -> tuple[MatrixProduct, int]:
    """Return a product whose three operands lie one behind the other from an address on, and the bytes they take."""
    size = np.dtype(dtype).itemsize
    m, n, k = (int(x) for x in rng.integers(0 if empty else 1, 6, 3))
    a_across, b_across, adds = (bool(x) for x in rng.integers(0, 2, 3))
    count = int(rng.choice([1, 1, 3]))
    shapes = [(k, m) if a_across else (m, k), (n, k) if b_across else (k, n), (m, n)]
    starts, leads, steps, end = [], [], [], 0
    for i, (rows, columns) in enumerate(shapes):
        lead = columns + int(rng.choice([0, 0, 3]))
        step = 0 if i < 2 and rng.random() < 0.2 else rows * lead + int(rng.choice([0, 0, 5]))
        starts.append(memory + end * size)
        leads.append(lead)
        steps.append(step if count > 1 else 0)
        end += (count - 1) * step + rows * lead + 1
    product = MatrixProduct(dtype, m, n, k, *starts, *leads, a_across, b_across, adds, count, *steps)
    return product, end * size


@pytest.mark.parametrize("make", DRIVERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_are_those_of_the_emulator(make: Any, dtype: str) -> None:
    """However matrices lie, and nothing else is written: what lies between rows and matrices stays as it is."""
    rng = np.random.default_rng(7)
    emulator, driver = Emulator(), make()
    stream = driver.stream()
    buffers = [emulator.allocate(1 << 14), driver.allocate(1 << 14)]
    for i in range(60):
        seed = int(rng.integers(1 << 40))
        products = []
        for buffer in buffers:
            product, used = some_product(np.random.default_rng(seed), buffer.pointer, dtype, empty=i % 3 == 0)
            assert used <= buffer.nbytes
            products.append(product)
        values = rng.standard_normal((1 << 14) // np.dtype(dtype).itemsize).astype(dtype).view(np.uint8)
        emulator.copy_in(buffers[0].pointer, values, 0)
        emulator.multiply(products[0], 0)
        expected = emulator.array(buffers[0], (len(values),), "uint8")
        staged = driver.pinned(len(values))
        staged[:] = values
        driver.copy_in(buffers[1].pointer, staged, stream)
        driver.multiply(products[1], stream)
        driver.copy_out(staged, buffers[1].pointer, stream)
        done = driver.event()
        driver.record(done, stream)
        driver.synchronize(done)
        tolerance = 1e-5 if dtype == "float32" else 1e-13
        np.testing.assert_allclose(
            staged.view(dtype), expected.view(dtype), rtol=tolerance, atol=tolerance, err_msg=str(products[0])
        )


def test_a_product_changes_places_and_nothing_else() -> None:
    product = MatrixProduct("float32", 2, 3, 4, 256, 512, 768, 5, 6, 7, True, False, False, 8, 9, 10, 11)
    columns = as_columns(product)
    assert columns[:5] == (0, 1, 3, 2, 4)
    assert columns[5:8] == (512, 6, 10)
    assert columns[8:11] == (256, 5, 9)
    assert columns[11:] == (768, 7, 11)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [(0, 24)]),
        ({"count": 2, "c_step": 6}, [(0, 48)]),
        ({"count": 2, "c_step": 8}, [(0, 24), (32, 24)]),
        ({"c_lead": 4}, [(0, 12), (16, 12)]),
        ({"c_lead": 4, "count": 2, "c_step": 8}, [(0, 12), (16, 12), (32, 12), (48, 12)]),
        ({"dtype": "float64"}, [(0, 48)]),
        ({"m": 0}, []),
        ({"n": 0, "c_lead": 3}, []),
        ({"count": 0}, []),
    ],
)
def test_results_lie_in_stretches(changes: dict[str, Any], expected: list[tuple[int, int]]) -> None:
    product = MatrixProduct("float32", 2, 3, 0, a=0, b=0, c=0, a_lead=0, b_lead=3, c_lead=3)
    assert stretches(replace(product, **changes)) == expected


@pytest.mark.parametrize("precision", COMPUTE)
def test_a_handle_is_made_once_for_a_stream_with_memory_of_its_own(precision: str) -> None:
    """Memory is given after the stream: to bind a handle to a stream takes its memory away."""
    driver, cupy, products = stand_in.driver(precision)
    first, second = driver.stream(), driver.stream()
    buffer = driver.allocate(1024)
    for dtype in ("float32", "float32", "float64"):
        driver.multiply(MatrixProduct(dtype, 2, 2, 2, *[buffer.pointer] * 3, 2, 2, 2), first)
    names = [name for name, *_ in products.asked]
    assert names == ["cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasSetMathMode", *["gemm"] * 3]
    assert products.asked[0][1:] == (first.ptr,)
    assert products.asked[1][2] == WORKSPACE
    assert products.asked[2][1:] == (0,)
    assert [asked[1] for asked in products.asked[3:]] == [COMPUTE[precision]] * 2 + [COMPUTE_F8]
    (_, waited_for) = cupy.asked_for("record")[-1]
    assert waited_for is first
    driver.multiply(MatrixProduct("float32", 2, 2, 2, *[buffer.pointer] * 3, 2, 2, 2), second)
    assert products.asked[6][1:] == (second.ptr,)
    assert cupy.asked_for("wait")[-1][0] is second  # for the memory of its handle
    del driver
    assert [name for name, *_ in products.asked].count("cublasDestroy_v2") == 2


def test_products_of_nothing_are_zero_unless_they_are_added() -> None:
    driver, cupy, products = stand_in.driver()
    stream = driver.stream()
    buffer = driver.allocate(1024)
    product = MatrixProduct("float32", 4, 4, 0, *[buffer.pointer] * 3, 1, 4, 4)
    driver.multiply(replace(product, adds=True), stream)
    assert cupy.asked_for("fill") == []
    driver.multiply(product, stream)
    assert cupy.asked_for("fill") == [(buffer.pointer, 64, stream.ptr)]
    assert products.asked == []


def test_what_cublas_refuses_is_an_error() -> None:
    driver, _, products = stand_in.driver()
    stream = driver.stream()
    product = MatrixProduct("float32", 2, 2, 2, *[driver.allocate(64).pointer] * 3, 2, 2, 2)
    driver.multiply(product, stream)
    products.status = 15
    with pytest.raises(BackendError, match="cuBLAS to multiply matrices, found CUBLAS_STATUS_NOT_SUPPORTED"):
        driver.multiply(product, stream)
    with pytest.raises(BackendError):
        Blas(products, 0, driver.allocate(64), "fp32")


def test_numbers_of_enumerations_are_those_of_cupy() -> None:
    libraries = pytest.importorskip("cupy_backends.cuda.libs")
    try:
        cublas = libraries.cublas
    except ImportError as error:
        pytest.skip(str(error))
    names = {"fp32": "", "tf32": "_FAST_TF32", "bf16": "_FAST_16BF", "3xtf32": ""}
    assert {key: getattr(cublas, f"CUBLAS_COMPUTE_32F{name}") for key, name in names.items()} == COMPUTE
    assert cublas.CUBLAS_COMPUTE_64F == COMPUTE_F8
    assert (cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_T, cublas.CUBLAS_DEFAULT_MATH) == (0, 1, 0)
    assert cublas.CUBLAS_GEMM_DEFAULT == -1
    assert KINDS == {"float32": 0, "float64": 1}


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_answers(), reason="there is no GPU")
@pytest.mark.parametrize(
    ("precision", "error"), [("fp32", 1e-6), ("3xtf32", 1e-6), ("tf32", 2e-3), ("bf16", 1.5e-2)]
)
def test_a_precision_has_an_error_of_its_size_and_is_the_same_each_time(precision: str, error: float) -> None:
    """Relative to the largest result; fp32 is no TF32 in disguise, and the others are really taken."""
    driver = load_driver(precision)
    stream, size = driver.stream(), 512
    values = np.random.default_rng(3).standard_normal((2, size, size)).astype("float32")
    right = values[0].astype("float64") @ values[1].astype("float64")
    buffer = driver.allocate(3 * 4 * size**2)
    staged = driver.pinned(2 * 4 * size**2)
    staged[:] = values.reshape(-1).view(np.uint8)
    driver.copy_in(buffer.pointer, staged, stream)
    c = buffer.pointer + 2 * 4 * size**2
    product = MatrixProduct(
        "float32", size, size, size, buffer.pointer, buffer.pointer + 4 * size**2, c, size, size, size
    )
    results = []
    for _ in range(3):
        driver.multiply(product, stream)
        out = driver.pinned(4 * size**2)
        driver.copy_out(out, c, stream)
        done = driver.event()
        driver.record(done, stream)
        driver.synchronize(done)
        results.append(out.view("float32").reshape(size, size).copy())
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
    measured = np.abs(results[0] - right).max() / np.abs(right).max()
    assert measured < error
    if error > 1e-6:
        assert measured > 1e-6
