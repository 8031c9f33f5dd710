"""Derivatives of gradients along directions of parameters and data, by hand.

Those of random programs, on every engine, are the law's (`tests.programs.checks`).
"""

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import BackendError
from foldbatch.params.parameters import dense
from tests.backends import LLVM, TESTED
from tests.derivative_checks import WAYS, compiled, passed_down_and_up
from tests.program.test_derivatives import TREES, gates
from tests.programs import BlockProgram
from tests.second_checks import Batch, assert_second

NODES = [
    {"x": [0.1, 0.2], "kids": [{"x": [0.5, -1.0], "kids": []}, {"x": [1.0, 1.5], "kids": []}]},
    {"x": [-0.3, 0.7], "kids": []},
]


@pytest.mark.parametrize("backend", [TESTED, *LLVM])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_recursion_with_dropout_draws_the_same_again(backend, seed):
    program = BlockProgram(gates(), TREES, seed)
    assert_second(compiled(program, backend), program)


@pytest.mark.parametrize("phase", [True, False])
def test_what_is_differentiated_is_the_phase_that_has_run(phase):
    program = compiled(BlockProgram(gates(), TREES, 0))
    batch = Batch(program._ready.derivatives, program._trace_all(TREES), None, training=phase)
    loss, _, gradients = batch.first()
    assert loss == pytest.approx(
        program.value_and_grad(TREES, step=7)[0] if phase else program.run(TREES, losses=True).loss
    )
    along = batch.direction(np.random.default_rng(0))
    assert batch.second(along)[0] == pytest.approx(gradients.along(along))


def test_data_that_two_cells_read():
    program = BlockProgram(passed_down_and_up(), NODES, 1)
    assert_second(compiled(program), program, [*WAYS, {"share": "subtrees"}])


def test_results_that_nothing_moves_have_tangents_of_zero():
    w = fb.Parameter([2, "float64"], [1.0, 2.0], "w")
    still = fb.cell(lambda number: ops.cast(number, "float64") * np.array([1.0, 3.0, 5.0]))
    scaled = fb.cell(lambda x: x * w)

    def walk(example: Any) -> Any:
        number, x = example
        return fb.tensor(number), still(fb.tensor(number)), scaled(fb.tensor(x, "float64"))

    program = fb.compile(walk, TESTED)
    traces = program._trace_all([(3, [1.0, 1.0])])
    batch = Batch(program._ready.derivatives, traces, [None, np.ones(3), np.array([1.0, 10.0])])
    along = batch.direction(np.random.default_rng(0))
    (v,), (dx,) = along.parameters.values(), along.data.values()
    _, (integer, constant, moved), products = batch.second(along)
    assert integer is None
    assert constant.tolist() == [0, 0, 0]
    np.testing.assert_allclose(moved, v + dx[0] * [1.0, 2.0])
    np.testing.assert_allclose(*products.parameters.values(), dx[0] * [1.0, 10.0])
    np.testing.assert_allclose(*products.data.values(), [v * [1.0, 10.0]])


def chain(memory: int | None) -> Any:
    step = fb.Linear(6, "tanh", name="step", init="glorot_normal")

    @fb.cell
    def advance(state: Any, x: Any) -> Any:
        return step(ops.concat([state, x]))

    def walk(words: Any) -> Any:
        state = fb.tensor(np.zeros(6))
        for word in words:
            state = advance(state, np.asarray(word, "float64"))
        return state

    return fb.compile(walk, TESTED, seed=1, fresh=True, threads=1, options={"memory": memory})


def test_a_budget_of_memory_is_kept_to_in_windows():
    rng = np.random.default_rng(0)
    examples = [list(rng.normal(size=(length, 4))) for length in (60, 40, 50)]
    cotangents = [*rng.normal(size=(3, 6))]
    found = []
    for memory in (None, 50_000):
        program = chain(memory)
        program.warm(examples)
        batch = Batch(program._ready.derivatives, program._trace_all(examples), cotangents)
        along = batch.direction(np.random.default_rng(1))
        found.append((batch, *batch.second(along)))
    (*_, values, right), (cut, _, same_values, same) = found
    (pool,) = cut.derivatives._duals.values()
    assert any(part.windows for part in pool.runner._bounded(cut.traces, training=True))
    np.testing.assert_allclose(same_values, values, rtol=1e-5, atol=1e-5)
    for one, other in ((same.parameters, right.parameters), (same.data, right.data)):
        for mine, theirs in zip(one.values(), other.values(), strict=True):
            np.testing.assert_allclose(dense(mine), dense(theirs), rtol=1e-5, atol=1e-5)
    with pytest.raises(BackendError, match="memory: expected a batch that needs at most 2,000 bytes"):
        small = chain(2_000)
        small.warm(examples)
        Batch(small._ready.derivatives, small._trace_all(examples), cotangents).second(along)
