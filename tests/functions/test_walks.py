"""The law of the second door: a batch of a random walk is what its function computes in eager mode, in float64."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.functions.eager import Seen, run
from tests.backends import lawful, running
from tests.functions.walks import WalkProgram, walk_program

PROGRAMS = int(os.environ.get("FOLDBATCH_WALKS") or 20)
LOT = 5  # programs a test


def assert_close(found: Any, right: Any) -> None:
    """Check that two results are of one structure, and close in float32."""
    if isinstance(right, tuple | list):
        assert type(found) is type(right)
        assert len(found) == len(right)
        for a, b in zip(found, right, strict=True):
            assert_close(a, b)
    elif isinstance(right, np.ndarray):
        assert found.shape == right.shape
        np.testing.assert_allclose(np.asarray(found), right, rtol=1e-3, atol=2e-4)
    else:
        assert found == right


def check(program: WalkProgram, engine: str) -> None:
    """Check results, losses, metrics and gradients of a walk, in a batch and one by one."""
    compiled = fb.compile(program.walk, engine)
    examples = program.examples
    results = compiled.run(examples, losses=True, metrics=True)
    seen = [run(program.walk, example, "float64") for example in examples]
    assert_close(list(results), [one.result for one in seen])
    assert results.loss == pytest.approx(sum(one.loss for one in seen), rel=1e-4, abs=1e-4)
    for name, found in results.metrics.items():
        right = [(i, *visit) for i, one in enumerate(seen) for visit in one.metrics.get(name, [])]
        assert found.examples.tolist() == [i for i, _, _ in right]
        assert (found.labels or [None] * len(found)) == [label for _, _, label in right]
        assert_close(list(found.values), [value for _, value, _ in right])
    assert_close([compiled.run([example])[0] for example in examples], [one.result for one in seen])
    assert_close(list(compiled.run(examples)), [one.result for one in seen])
    assert_differentiated(program, compiled)


def assert_differentiated(program: WalkProgram, compiled: fb.Program) -> None:
    """Check the gradient along a direction against a difference of eager losses."""
    loss, gradients = compiled.value_and_grad(program.examples)
    dense = {
        n: g.dense() if isinstance(g, fb.params.SparseRows) else np.array(g) for n, g in gradients.items()
    }
    draw = np.random.default_rng(program.seed)
    along = {name: draw.normal(size=gradient.shape) for name, gradient in dense.items()}
    origin = {name: compiled.params[name].copy() for name in along}

    def at(distance: float) -> float:
        for name, direction in along.items():
            compiled.params[name] = origin[name] + distance * direction
        return float(sum(losses_of(program)))

    step = 5e-3
    difference = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)
    at(0.0)
    found = sum(float(np.vdot(gradient, along[name])) for name, gradient in dense.items())
    assert found == pytest.approx(difference, rel=2e-3, abs=2e-3 * max(1.0, abs(loss)))


def losses_of(program: WalkProgram) -> list[float]:
    return [eager(program, example).loss for example in program.examples]


def eager(program: WalkProgram, example: Any) -> Seen:
    return run(program.walk, example, "float64")


@pytest.mark.parametrize("first", range(0, PROGRAMS, LOT))
@lawful
def test_a_batch_of_a_walk_is_its_function_one_by_one(engine: str, first: int) -> None:
    for seed in range(first, min(first + LOT, PROGRAMS)):
        with warnings.catch_warnings(), running(engine, seed) as backend:
            warnings.simplefilter("ignore", fb.errors.FoldbatchWarning)
            try:
                check(walk_program(seed), backend)
            except Exception as error:
                error.add_note(f"walk_program({seed}) on {engine}")
                raise
