"""The law of rounds: a batch of walks that read numbers is each of them alone, decisions, values and gradients."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.functions.eager import run
from tests.backends import lawful, running
from tests.functions.choices import ChoiceProgram, choice_program

PROGRAMS = int(os.environ.get("FOLDBATCH_CHOICES") or 12)
LOT = 3  # programs a test
CLOSE = 1e-3  # a decision closer than this may fall otherwise in float32


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


def dense(gradients: Any) -> dict[str, np.ndarray]:
    return {
        n: g.dense() if isinstance(g, fb.params.SparseRows) else np.array(g) for n, g in gradients.items()
    }


def check(program: ChoiceProgram, engine: str) -> None:
    """Check a batch against eager mode in float64, and against the program with the path given."""
    compiled = fb.compile(program.walk, engine)
    examples = program.examples
    compiled.run([e.fresh() for e in examples], losses=True)  # which makes all parameters
    seen = []
    for example in examples:  # which gives them their decisions
        example.path.taken.clear()
        seen.append(run(program.walk, example, "float64"))
    far = [i for i, e in enumerate(examples) if e.path.margin > CLOSE]
    batch = [examples[i].fresh() for i in far]
    results = compiled.run(batch, losses=True, metrics=True)
    right = [seen[i] for i in far]
    assert [e.path.taken.keys() for e in batch] == [examples[i].path.taken.keys() for i in far]
    assert_close(list(results), [one.result for one in right])
    assert results.loss == pytest.approx(sum(one.loss for one in right), rel=1e-4, abs=1e-4)
    assert_close(list(compiled.run([e.fresh() for e in batch])), [one.result for one in right])
    if batch:
        differentiated(program, compiled, batch, engine)


def differentiated(program: ChoiceProgram, compiled: fb.Program, batch: list[Any], engine: str) -> None:
    """Check gradients against the program with the path given, and that against a difference of losses."""
    loss, gradients = compiled.value_and_grad(fresh := [e.fresh() for e in batch], step=3)
    given = fb.compile(program.walk, engine)
    paths = [e.again() for e in fresh]
    right, known = given.value_and_grad(paths, step=3)
    assert not given.lowered.decides
    found, known = dense(gradients), dense(known)
    exact = not program.forks
    assert loss == right if exact else loss == pytest.approx(right, rel=1e-5)
    for name, gradient in found.items():
        np.testing.assert_allclose(
            gradient, known[name], rtol=0 if exact else 1e-3, atol=0 if exact else 1e-4
        )
    if program.drops:
        return
    draw = np.random.default_rng(program.seed)
    along = {name: draw.normal(size=gradient.shape) for name, gradient in found.items()}
    origin = {name: compiled.params[name].copy() for name in along}

    def at(distance: float) -> float:
        for name, direction in along.items():
            compiled.params[name] = origin[name] + distance * direction
        return float(sum(run(program.walk, e.again(), "float64").loss for e in fresh))

    step = 5e-3
    difference = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)
    at(0.0)
    slope = sum(float(np.vdot(gradient, along[name])) for name, gradient in found.items())
    assert slope == pytest.approx(difference, rel=2e-3, abs=2e-3 * max(1.0, abs(loss)))


@pytest.mark.parametrize("first", range(0, PROGRAMS, LOT))
@lawful
def test_a_batch_that_decides_is_its_examples_one_by_one(engine: str, first: int) -> None:
    for seed in range(first, min(first + LOT, PROGRAMS)):
        with warnings.catch_warnings(), running(engine, seed) as backend:
            warnings.simplefilter("ignore", fb.errors.FoldbatchWarning)
            try:
                check(choice_program(seed), backend)
            except Exception as error:
                error.add_note(f"choice_program({seed}) on {engine}")
                raise
