"""``python -m benchmarks.chains``: would long chains gain from Newton's method with a scan?

A chain of T dependent calls takes T steps of any schedule. Where the state enters a cell element by element
(a diagonal recurrence), all states can be found at once: guess them, linearise the cell at the guess, solve
the linear recurrence by an associative scan in log2(T) passes, and repeat until nothing changes (ParaRNN,
arXiv 2510.21450). This module has that method in NumPy for one such cell, and measures it beside the chain of
the same cell in foldbatch, forward. It is a prototype: no part of foldbatch uses it.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import foldbatch as fb
from benchmarks.machine import machine
from benchmarks.options import add_backend, add_repeats, positive
from foldbatch import ops

Array = NDArray[np.float32]
TOLERANCE, MOST = 1e-5, 60  # the largest change of an element in the last iteration, and iterations at most


def gates(states: Array, inputs: Array, weights: Array) -> tuple[Array, Array]:
    """Return the next state of each state, and the derivative of its elements by those of the state.

    The cell is a gated recurrent unit whose recurrent weights are diagonal: ``z = sigmoid(a + u h)``,
    ``c = tanh(b + v h)``, ``h' = h + z (c - h)``.

    Args:
        states: h, ``[..., H]``.
        inputs: a and b side by side, ``[..., 2 H]``, which depend on the chain's data alone.
        weights: u and v, ``[2, H]``.
    """
    a, b = np.split(inputs, 2, axis=-1)
    z = 0.5 + 0.5 * np.tanh(0.5 * (a + weights[0] * states))
    c = np.tanh(b + weights[1] * states)
    slope = 1 - z + z * (1 - z) * weights[0] * (c - states) + z * (1 - c * c) * weights[1]
    return states + z * (c - states), slope


def step_by_step(inputs: Array, weights: Array) -> Array:
    """Return all states ``[T, N, H]`` of N chains whose first state is zero, one step after the other."""
    state, found = np.zeros((*inputs.shape[1:-1], weights.shape[1]), np.float32), []
    for row in inputs:
        state, _ = gates(state, row, weights)
        found.append(state)
    return np.stack(found)


def scanned(slopes: Array, offsets: Array) -> Array:
    """Solve ``h[t] = slopes[t] h[t - 1] + offsets[t]`` from zero, for all t at once, in log2(T) passes.

    >>> scanned(np.full((4, 1), 2.0, "float32"), np.ones((4, 1), "float32")).ravel().tolist()
    [1.0, 3.0, 7.0, 15.0]
    """
    slopes, found, reach = slopes.copy(), offsets.copy(), 1
    while reach < len(found):
        found[reach:] += slopes[reach:] * found[:-reach]
        slopes[reach:] *= slopes[:-reach].copy()
        reach *= 2
    return found


def by_newton(inputs: Array, weights: Array) -> tuple[Array, int]:
    """Return all states, and how many iterations of Newton's method they took."""
    found = np.zeros((*inputs.shape[:-1], weights.shape[1]), np.float32)
    iterations, change = 0, np.inf
    while change > TOLERANCE and iterations < MOST:
        before = np.concatenate([np.zeros_like(found[:1]), found[:-1]])
        after, slopes = gates(before, inputs, weights)
        better = scanned(slopes, after - slopes * before)
        change = float(np.abs(better - found).max())
        found, iterations = better, iterations + 1
    return found, iterations


def chain(weights: Array) -> Any:
    """Return the same cell along a chain as a walk; an example is an array ``[T, 2 H]``."""
    size = weights.shape[1]
    u, v = fb.Parameter([size], weights[0], "u"), fb.Parameter([size], weights[1], "v")

    @fb.cell
    def step(row: Any, h: Any) -> Any:
        a, b = row[:size], row[size:]
        z, c = ops.sigmoid(a + u * h), ops.tanh(b + v * h)
        return h + z * (c - h)

    def walk(rows: Any) -> Any:
        state = fb.tensor([0.0] * size)
        for row in rows:
            state = step(row, state)
        return state

    return walk


def compared(
    length: int, batch: int, size: int, spread: float, repeats: int, backend: Any
) -> tuple[float, float, float, int]:
    """Return the CPU milliseconds of foldbatch, of NumPy step by step and of Newton's method; its iterations.

    The recurrent weights are normal with the standard deviation `spread`.

    Raises:
        AssertionError: when they find other states.
    """
    rng = np.random.default_rng(0)
    weights = rng.normal(0, spread, (2, size)).astype(np.float32)
    inputs = rng.normal(0, 1, (length, batch, 2 * size)).astype(np.float32)
    program = fb.compile(chain(weights), backend, threads=1)
    examples = program.prepare([inputs[:, n] for n in range(batch)])
    spent: dict[str, list[float]] = {}
    found: dict[str, Any] = {}
    ways: dict[str, Callable[[], Any]] = {
        "ours": lambda: np.array(list(program.run(examples))),
        "steps": lambda: step_by_step(inputs, weights)[-1],
        "newton": lambda: by_newton(inputs, weights),
    }
    for _ in range(repeats + 1):
        for name, way in ways.items():
            start = time.process_time()
            found[name] = way()
            spent.setdefault(name, []).append(1e3 * (time.process_time() - start))
    states, iterations = found["newton"]
    np.testing.assert_allclose(found["ours"], found["steps"], atol=1e-4)
    np.testing.assert_allclose(states[-1], found["steps"], atol=1e-3)
    ours, steps, newton = (median(spent[name][1:]) for name in ways)
    return ours, steps, newton, iterations


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each length and batch."""
    parser = ArgumentParser("python -m benchmarks.chains", description=(__doc__ or "").split("\n")[0])
    add_backend(parser)
    add_repeats(parser, 3)
    parser.add_argument(
        "--length", type=positive, nargs="+", default=[1000, 10_000], metavar="T", help="steps"
    )
    parser.add_argument("--batch", type=positive, nargs="+", default=[1, 16], metavar="N", help="chains")
    parser.add_argument("--hidden", type=positive, default=64, metavar="H", help="elements of a state")
    what = "standard deviation of the recurrent weights (default 0.3)"
    parser.add_argument("--spread", type=float, default=0.3, metavar="S", help=what)
    options = parser.parse_args(arguments)
    print(f"{time.strftime('%Y-%m-%d')}, {machine()}")
    print("length  batch  foldbatch, ms  NumPy, ms  Newton, ms  iterations")
    for length in options.length:
        for batch in options.batch:
            found = compared(length, batch, options.hidden, options.spread, options.repeats, options.backend)
            print("{:6}{:7}{:15.1f}{:11.1f}{:12.1f}{:12}".format(length, batch, *found))


if __name__ == "__main__":
    main()
