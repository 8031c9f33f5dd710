"""What only a card can tell of graphs and of blocks that run side by side; the same, as far as it goes, emulated."""

import os
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.cuda import cupy_driver
from foldbatch.engines.cuda.driver import Driver
from tests.engines.cuda import replayed, trees
from tests.engines.cuda.emulated import gpu_answers
from tests.engines.cuda.emulator import Emulator
from tests.programs.comparing import gradients_of

emulated = pytest.mark.skipif(
    os.environ.get("FOLDBATCH_BACKEND") != "cuda-on-cpu", reason="runs with FOLDBATCH_BACKEND=cuda-on-cpu"
)
on_card = [pytest.mark.gpu, pytest.mark.skipif(not gpu_answers(), reason="there is no GPU")]
BACKENDS = [pytest.param("cuda", marks=on_card), pytest.param("cuda-on-cpu", marks=emulated)]
DRIVERS = [
    pytest.param(cupy_driver.load_driver, id="card", marks=on_card),
    pytest.param(Emulator, id="emulated", marks=emulated),
]
BATCHES = [trees.TREES, trees.TREES[:1], [trees.TREES[2], *trees.TREES], trees.TREES[1:]]
ROUNDS = 3


def trained(program: fb.Program) -> tuple[list[float], dict[str, Any], dict[str, Any]]:
    """Return losses of all batches, `ROUNDS` times; gradients of the first after that; and parameters."""
    optimizer, losses = fb.Adam(lr=0.01), []
    for _ in range(ROUNDS):
        for examples in BATCHES:
            loss, gradients = program.value_and_grad(examples)
            optimizer.update(program.params, gradients, scale=1 / len(examples))
            losses.append(loss)
    found = [float(loss) for loss in losses]
    _, gradients = gradients_of(program, BATCHES[0])
    arrays = {name: np.array(gradient) for name, gradient in gradients.items()}
    return found, arrays, {name: np.array(value) for name, value in program.params.items()}


def compiled(backend: str, engine: str) -> fb.Program:
    program = fb.compile(trees.model(), backend, threads=1, launch=engine, debug=True)
    for number, name in enumerate(program.params):
        program.params[name] = np.full(program.params[name].shape, (7 * number + 1) / 20)
    return program


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("engine", ["captured"])
def test_every_way_to_launch_trains_alike(backend: str, engine: str) -> None:
    """In float64, with memory that begins as NaN; batches of four shapes run again and again."""
    program = compiled(backend, engine)
    program.warm([tree for batch in BATCHES for tree in batch], 4)
    losses, *arrays = trained(program)
    assert program.engine.launcher(training=True).captures().milliseconds
    expected, *others = trained(compiled(backend, "straight"))
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
    for found, right in zip(arrays, others, strict=True):
        assert found.keys() == right.keys()
        for name in right:
            np.testing.assert_allclose(found[name], right[name], rtol=1e-7, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("make", DRIVERS)
def test_graphs_that_are_captured_while_others_run_keep_only_their_own(make: Any) -> None:
    """A graph holds nothing that another stream does meanwhile."""
    driver: Driver = make()
    main, aside, done = driver.stream(), driver.stream(), driver.event()
    a, b = driver.allocate(48), driver.allocate(48)
    results = driver.allocate(64)
    hosts = [
        replayed.sent(driver, at.pointer, numbers, main)
        for at, numbers in ((a, replayed.A), (b, replayed.B), (results, np.zeros((2, 2, 2))))
    ]
    driver.multiply(replayed.product(a, b, results), main)
    driver.begin_capture(aside)
    driver.copy(results.pointer + 32, results.pointer, 32, main)
    driver.fill(results.pointer, 0, 32, aside)
    graph = driver.end_capture(aside)
    driver.replay(graph, main)
    back = driver.pinned(64)
    driver.copy_out(back, results.pointer, main)
    driver.record(done, main)
    driver.synchronize(done)
    del hosts
    found = back.view(np.float64).reshape(2, 2, 2)
    np.testing.assert_array_equal(found, [np.zeros((2, 2)), replayed.A @ replayed.B])
