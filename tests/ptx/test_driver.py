"""What is no kernel is watched, too: copies, fills and products; and graphs when they are replayed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from foldbatch.engines.cuda.driver import MatrixProduct
from tests.ptx.driver import Memory, PtxDriver, loaded
from tests.ptx.machine import PtxFaultError
from tests.ptx.needed import needs_ptx

pytestmark = needs_ptx
TEXT = "KERNEL k1_2(i8 x) { if (LANE_X < 4) ((f4*)x)[LANE_X] *= 2; }\n"
OTHER = "KERNEL k3_4(i8 x) { if (LANE_X < 4) ((f4*)x)[LANE_X] *= 2; }\nKERNEL none(i8 x) {}\n"


def filled(driver: PtxDriver, *shape: int) -> Memory:
    memory = driver.allocate(4 * int(np.prod(shape)))
    memory.array(shape, "float32")[:] = np.arange(np.prod(shape)).reshape(shape)
    return memory


def products(driver: PtxDriver) -> tuple[MatrixProduct, list[Memory]]:
    """Return a product of [2, 3] by [3, 4] over memory of just that size."""
    memory = [filled(driver, 2, 3), filled(driver, 3, 4), driver.allocate(32)]
    a, b, c = (each.pointer for each in memory)
    return MatrixProduct("float32", 2, 4, 3, a, b, c, 3, 4, 4), memory


def test_a_product_reads_and_writes_its_matrices() -> None:
    driver = PtxDriver()
    product, memory = products(driver)
    driver.multiply(product, driver.stream())
    right = np.arange(6).reshape(2, 3) @ np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(memory[2].array((2, 4), "float32"), right)


@pytest.mark.parametrize(
    "change",
    [{"m": 3}, {"k": 4}, {"n": 5}, {"a_lead": 4}, {"b_lead": 5}, {"c_lead": 5}, {"count": 2, "c_step": 8}],
)
def test_a_product_beyond_its_memory_is_noticed(change: dict[str, Any]) -> None:
    driver = PtxDriver()
    product, _memory = products(driver)
    with pytest.raises(PtxFaultError, match="out of bounds"):
        driver.multiply(replace(product, **change), driver.stream())


def test_a_product_added_to_what_nobody_wrote_is_noticed_when_it_is_read() -> None:
    """Where a class has room, a product adds to rows of no call, and nobody reads these."""
    driver = PtxDriver()
    product, memory = products(driver)
    driver.multiply(replace(product, adds=True), driver.stream())
    target = filled(driver, 2, 4)
    reader = MatrixProduct("float32", 2, 4, 2, product.a, memory[2].pointer, target.pointer, 3, 4, 4)
    with pytest.raises(PtxFaultError, match="nobody wrote"):
        driver.multiply(reader, driver.stream())
    driver.fill(memory[2].pointer, 0, 32, driver.stream())
    driver.multiply(replace(product, adds=True), driver.stream())
    driver.multiply(reader, driver.stream())


def test_copies_and_fills_stay_in_memory() -> None:
    driver = PtxDriver()
    stream, x, y = driver.stream(), filled(driver, 4), driver.allocate(16)
    driver.copy(y.pointer, x.pointer, 16, stream)
    for act in (
        lambda: driver.copy(y.pointer, x.pointer, 17, stream),
        lambda: driver.fill(y.pointer + 8, 0, 9, stream),
        lambda: driver.copy_in(y.pointer, np.zeros(17, np.uint8), stream),
        lambda: driver.copy_out(np.zeros(17, np.uint8), y.pointer, stream),
    ):
        with pytest.raises(PtxFaultError, match="out of bounds"):
            act()


def test_a_graph_does_not_hold_its_memory() -> None:
    driver = PtxDriver()
    stream, x = driver.stream(), filled(driver, 4)
    driver.begin_capture(stream)
    driver.launch(driver.load(TEXT)("k1_2"), 1, (32, 1), (x.pointer,), stream)
    graph = driver.end_capture(stream)
    assert x.array((4,), "float32").tolist() == [0, 1, 2, 3]
    driver.replay(graph, stream)
    assert x.array((4,), "float32").tolist() == [0, 2, 4, 6]
    del x
    with pytest.raises(PtxFaultError, match="out of bounds"):
        driver.replay(graph, stream)


def test_launches_that_a_gpu_refuses_are_refused() -> None:
    driver = PtxDriver()
    x = filled(driver, 4)
    function = driver.load(TEXT)("k1_2")
    for blocks, threads, arguments in ((0, (32, 1), 1), (1, (32, 9), 1), (1, (32, 1), 2)):
        with pytest.raises(AssertionError):
            driver.launch(function, blocks, threads, (x.pointer,) * arguments, driver.stream())


def test_kernels_that_are_alike_are_compiled_once() -> None:
    """Whatever the numbers in their names."""
    first, second = loaded(TEXT), loaded(OTHER)
    assert first("k1_2") is second("k3_4")
    assert second("none") is not second("k3_4")
