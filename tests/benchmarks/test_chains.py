"""Newton's method with a scan finds the states that a chain finds step by step, in few iterations."""

import numpy as np

from benchmarks import chains


def drawn(length: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    weights = rng.normal(0, spread, (2, 5)).astype(np.float32)
    return rng.normal(0, 1, (length, 3, 10)).astype(np.float32), weights


def test_slopes_are_derivatives_of_the_next_state_by_the_state():
    inputs, weights = drawn(4, 1.0)
    states = np.random.default_rng(1).normal(size=(4, 3, 5))
    above, below = (chains.gates(states + sign * 1e-4, inputs, weights)[0] for sign in (1, -1))
    np.testing.assert_allclose(chains.gates(states, inputs, weights)[1], (above - below) / 2e-4, atol=1e-6)


def test_newtons_method_finds_the_states_of_all_steps():
    inputs, weights = drawn(50, 0.3)
    found, iterations = chains.by_newton(inputs, weights)
    np.testing.assert_allclose(found, chains.step_by_step(inputs, weights), atol=1e-4)
    assert iterations < 10


def test_one_iteration_solves_a_linear_recurrence():
    """Without recurrent weights in the gates the next state is linear in the state."""
    inputs, weights = drawn(20, 0.0)
    found, iterations = chains.by_newton(inputs, weights)
    np.testing.assert_allclose(found, chains.step_by_step(inputs, weights), atol=1e-5)
    assert iterations == 2  # the second one sees that nothing changes


def test_the_command_compares_states_before_it_prints_a_line(capsys):
    chains.main("--length 7 20 --batch 2 --hidden 4 --repeats 1 --backend numpy".split())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[-2:]] == [["7", "2"], ["20", "2"]]
