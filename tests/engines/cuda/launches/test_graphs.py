"""Graphs, launches of blocks that run side by side, and products whose addresses the device looks up."""

import os

import numpy as np
import pytest

from foldbatch.engines.cuda.drivers import cupy_driver
from foldbatch.engines.cuda.drivers.driver import Product, Span, Touched
from foldbatch.engines.cuda.drivers.emulator import Emulator
from foldbatch.engines.cuda.drivers.nvrtc import Compiled
from foldbatch.engines.cuda.recording.calls import count, launches
from tests.engines.cuda import stand_in
from tests.engines.cuda.checked import ORDERS, assert_faultless, recorder
from tests.engines.cuda.emulated import needs_compiler

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(
        os.environ.get("FOLDBATCH_BACKEND") != "cuda-on-cpu", reason="runs with FOLDBATCH_BACKEND=cuda-on-cpu"
    ),
]


@pytest.fixture(autouse=True)
def _compiled_by_gcc(monkeypatch):
    monkeypatch.setattr(cupy_driver, "compiled", lambda text, *_: Compiled(text.encode(), ""))


TEXT = """
KERNEL grow(i8 x, i8 n) { for (i8 i = BLOCK * LANES_X + LANE_X; i < n; i += BLOCKS * LANES_X) ((f8*)x)[i] += 1; }
KERNEL twice(i8 x, i8 n) { for (i8 i = BLOCK * LANES_X + LANE_X; i < n; i += BLOCKS * LANES_X) ((f8*)x)[i] *= 2; }
"""


def _whole(buffer):
    span = Span(buffer.pointer, buffer.nbytes)
    return lambda: Touched([span], [span])


def _copied(driver, buffer, stream):
    target, event = driver.pinned(buffer.nbytes), driver.event()
    driver.copy_out(target, buffer.pointer, stream)
    driver.record(event, stream)
    driver.synchronize(event)
    return target.view("f8").copy()


def _growing(driver):
    """Return what four runs of ``x = 2 * (x + 1)`` in a graph make of zeros."""
    module, stream, aside = driver.load(TEXT), driver.stream(), driver.stream()
    x = driver.allocate(80)
    driver.fill(x.pointer, 0, x.nbytes, stream)
    driver.begin_capture(aside)
    for name in ("grow", "twice"):
        driver.launch(module.function(name), 2, (4, 1), (x.pointer, 10), aside, _whole(x))
    graph = driver.end_capture(aside)
    for _ in range(4):
        driver.replay(graph, stream, _whole(x))
    return _copied(driver, x, stream)


def test_a_graph_is_run_and_not_when_it_is_captured():
    assert _growing(Emulator()).tolist() == [30.0] * 10


@pytest.mark.parametrize("order", ORDERS)
def test_a_graph_is_one_launch_in_the_order_of_its_stream(order):
    recorded = recorder(order)
    assert _growing(recorded).tolist() == [30.0] * 10
    assert_faultless(recorded)
    counts = count(recorded.calls)
    assert (counts.replays, counts.launches, launches(recorded.calls)) == (4, 0, {})


def test_cupy_captures_and_replays():
    driver, cupy, _ = stand_in.driver()
    assert _growing(driver).tolist() == [30.0] * 10
    (captured, mode), (graph, stream) = cupy.asked_for("begin capture")[0], cupy.asked_for("replay")[0]
    assert (mode, captured is stream, len(graph.kept)) == (1, False, 2)
    assert cupy.asked_for("upload") == [(graph, captured)]
    assert len(cupy.asked_for("launch")) == 2  # while it was captured


@pytest.mark.parametrize(
    "driver", [Emulator(), stand_in.driver()[0], recorder()], ids=["cpu", "cupy", "recorder"]
)
def test_blocks_side_by_side(driver):
    stream, x = driver.stream(), driver.allocate(80)
    grow = driver.load(TEXT).function("grow")
    driver.fill(x.pointer, 0, x.nbytes, stream)
    blocks = driver.blocks_together(grow, (256, 1))
    driver.launch_together(grow, blocks, (256, 1), (x.pointer, 10), stream, _whole(x))
    assert _copied(driver, x, stream).tolist() == [1.0] * 10
    assert driver.multiprocessors >= 1


def test_more_blocks_than_run_side_by_side_are_refused():
    driver = Emulator()
    with pytest.raises(AssertionError, match="side by side"):
        driver.launch_together(driver.load(TEXT).function("grow"), 2, (256, 1), (0, 0), 0)


@pytest.mark.parametrize("driver", [Emulator(), stand_in.driver()[0]], ids=["cpu", "cupy"])
@pytest.mark.parametrize("adds", [False, True])
def test_a_product_finds_its_matrices_when_it_is_done(driver, adds):
    stream = driver.stream()
    rng = np.random.default_rng(3)
    memory = driver.allocate(8 * 100)
    host = driver.pinned(8 * 100)
    numbers = host.view("f8")
    numbers[:] = rng.normal(size=100)
    m, n, k, places = 3, 4, 5, (10, 30, 60)
    wanted = numbers[10:25].reshape(m, k) @ numbers[30:50].reshape(k, n)
    wanted += numbers[60:72].reshape(m, n) if adds else 0
    host.view("i8")[:3] = [memory.pointer + 8 * place for place in places]
    product = Product("float64", m, n, k, 0, 0, 0, k, n, n, adds=adds)
    if isinstance(driver, Emulator):  # the stand-in for cuBLAS does not wait to be replayed
        driver.begin_capture(stream)
        driver.multiply_at(product, memory.pointer, stream)
        graph = driver.end_capture(stream)
        driver.copy_in(memory.pointer, host, stream)
        driver.replay(graph, stream)
    else:
        driver.copy_in(memory.pointer, host, stream)
        driver.multiply_at(product, memory.pointer, stream)
    np.testing.assert_allclose(_copied(driver, memory, stream)[60:72].reshape(m, n), wanted)
