"""One random program, checked in every way: the float64 oracle, and all that must not change what it computes.

The number of a program decides everything: the blocks, the examples, and which ways of running it are tried.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

import foldbatch as fb
from foldbatch.engines import threads
from foldbatch.errors import ExampleTypeError
from foldbatch.model.traces import check_trace
from foldbatch.program import Program
from foldbatch.scheduler.layout import LAYOUTS
from foldbatch.scheduler.policies import POLICIES
from foldbatch.scheduler.sharing import SHARES
from tests.derivative_checks import assert_hvp, assert_input_gradients, assert_jvp, assert_vjp
from tests.oracle import meaning
from tests.programs import BlockProgram, drawn
from tests.test_laws import (
    assert_differentiated,
    assert_meant,
    assert_same,
    gradients_of,
    planned_by,
    run_with,
)
from tests.test_variants import assert_the_same_without_asides

KEPT_BYTES = (None, 0, 8, 40)
STEP = 5  # of training: what dropout draws


def check(number: int, backend: str, *, many: bool = True) -> None:
    """Check the random program of a number on an engine.

    Args:
        number: decides everything.
        backend: the engine.
        many: run it in six ways with two sets of parameters; else as compiled and in one other way, with one set.

    Raises:
        Exception: whatever goes wrong; an AssertionError where something differs.
    """
    rng = Random(number)
    dropout = rng.random() < 0.2
    program = drawn(rng.randrange(2**32), 10**6, size=rng.choice([15, 30, 45]), dropout=dropout)
    kept_bytes, debug = rng.choice(KEPT_BYTES), rng.random() < 0.7
    compiled = fb.compile(program.block, backend, threads=1, debug=debug, kept_bytes=kept_bytes)
    with mock.patch.multiple(threads, CALLS_PER_PART=1, MULTIPLICATIONS_PER_PART=1):
        check_ways(compiled, program, rng, many)
        if not dropout:
            assert_differentiated(program, compiled)
            change(compiled, rng)  # what the step before has left must not be read
            if many:
                check_ways(compiled, program, rng, many)
        else:
            check_draws(compiled, program, rng, many)
        rarely = (16 if backend == "numba" else 4) * (1 if many else 4)  # each of these compiles other cells
        for derivative in (assert_jvp, assert_hvp, assert_input_gradients, assert_vjp):
            if rng.randrange(rarely) == 0:
                policy = rng.choice(list(POLICIES))
                derivative(fb.compile(program.block, backend, policy=policy, threads=1, debug=debug), program)
        if rng.randrange(rarely) == 0:
            assert_the_same_without_asides(program, backend)
    if rng.randrange(4) == 0:
        check_evaluation(compiled, program)
    if rng.randrange(4) == 0:
        check_kept(compiled, program)


def change(compiled: Program, rng: Random) -> None:
    """Give all parameters new values."""
    draws = np.random.default_rng(rng.randrange(2**32))
    for name in compiled.params:
        compiled.params[name] = draws.normal(0.0, 0.6, compiled.params[name].shape)


def ways(compiled: Program, rng: Random, many: bool) -> Iterator[Program]:
    """Yield programs of one model that run it in several ways, the one that was compiled first, the oracle last."""
    yield compiled
    for _ in range(3 if many else rng.randrange(2)):
        other = planned_by(compiled, rng.choice(list(POLICIES)))
        layout, share = rng.choice(list(LAYOUTS)), rng.choice(list(SHARES))
        yield run_with(other, layout=layout, share=share, threads=rng.choice([1, 2, 4]))
    if many or rng.randrange(8) == 0:
        yield run_with(compiled, batched=False)
        yield run_with(compiled, backend="reference")


def check_ways(compiled: Program, program: BlockProgram, rng: Random, many: bool) -> None:
    """Check values, metrics, losses and gradients in several ways, of examples, plans and prepared files."""
    meanings = [meaning(program.block, example) for example in program.examples]
    gradients: dict[str, Any] | None = None
    for engine in ways(compiled, rng, many):
        for trace in engine._trace_all(program.examples):
            check_trace(engine.model, engine.lowered.tracer.policy, trace)
        assert_meant(engine, program.examples, meanings)
        given = rng.choice([given_examples, given_plan, given_file])(engine, program)
        assert_meant(engine, given, meanings)
        loss, found = gradients_of(engine, given, STEP)
        if not any(compiled.model.keys):
            assert_same(np.array(loss), np.array(float(sum(m.loss for m in meanings))))
        gradients = gradients or found
        assert found.keys() == gradients.keys()
        for name, gradient in found.items():
            assert_same(gradient, gradients[name])


def given_examples(engine: Program, program: BlockProgram) -> Any:
    """Return the examples."""
    return program.examples


def given_plan(engine: Program, program: BlockProgram) -> Any:
    """Return a plan of the examples."""
    return engine.plan(program.examples)


def given_file(engine: Program, program: BlockProgram) -> Any:
    """Return the examples from a file; where their objects are not plain, the examples."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            fb.prepare(engine, program.examples, Path(folder, "examples"))
        except ExampleTypeError:
            return program.examples
        return fb.load_prepared(engine, Path(folder, "examples"))


def check_draws(compiled: Program, program: BlockProgram, rng: Random, many: bool) -> None:
    """Check that what a step draws depends on the step and the call alone."""
    first: dict[int, Any] = {}
    for engine in ways(compiled, rng, many):
        for step in (3, 7, 3):
            found = gradients_of(engine, program.examples, step)
            loss, gradients = first.setdefault(step, found)
            assert_same(np.array(found[0]), np.array(loss))
            for name, gradient in gradients.items():
                assert_same(found[1][name], gradient)


def check_kept(compiled: Program, program: BlockProgram) -> None:
    """Check that the program, saved and loaded, gives what it gave, and is saved as the same file."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "first"), Path(folder, "second")
        compiled.save(first)
        twin = fb.load(first, compiled.engine.name, trust=["tests"], threads=1, debug=compiled.options.debug)
        twin.save(second)
        assert first.read_bytes() == second.read_bytes()
    found, expected = (
        gradients_of(twin, program.examples, STEP),
        gradients_of(compiled, program.examples, STEP),
    )
    assert_same(np.array(found[0]), np.array(expected[0]))
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        assert_same(found[1][name], gradient)


def check_evaluation(compiled: Program, program: BlockProgram) -> None:
    """Check that the block, evaluated by itself, gives what the program gives."""
    results = compiled.run(program.examples[:1], metrics=True)
    found = program.block.eval(program.examples[0], "numpy")
    assert_same(found[0] if results.metrics else found, results[0])
