"""One random program, checked in every way: the float64 oracle, and all that must not change what it computes.

The number of a program decides everything: the blocks, the examples, and which ways of running it are tried.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import foldbatch as fb
from foldbatch.errors import ExampleTypeError
from foldbatch.model.traces import check_trace
from foldbatch.program.program import Program
from foldbatch.scheduler.layout import LAYOUTS
from foldbatch.scheduler.policies import POLICIES
from foldbatch.scheduler.sharing import SHARES
from tests.backends import running
from tests.derivative_checks import assert_hvp, assert_input_gradients, assert_jvp, assert_vjp
from tests.oracle import meaning
from tests.program.test_variants import assert_the_same_without_asides
from tests.programs import BlockProgram, drawn
from tests.programs.comparing import (
    assert_differentiated,
    assert_meant,
    assert_same,
    gradients_of,
    metrics_of,
    planned_by,
    run_with,
)

KEPT_BYTES = (None, 0, 8, 40)
SIZES = (15, 15, 30)  # the most blocks, where many programs are to be checked
STEP = 5  # of training: what dropout draws


def check(number: int, engine: str, *, many: bool = True) -> None:
    """Check the random program of a number on an engine.

    Args:
        number: decides everything.
        engine: its name.
        many: run it in six ways with two sets of parameters; else as compiled and in one other way, with one set.

    Raises:
        Exception: whatever goes wrong; an AssertionError where something differs.
    """
    rng = Random(number)
    dropout = rng.random() < 0.2
    program = drawn(
        rng.randrange(2**32), 10**6, size=rng.choice([15, 30, 45] if many else SIZES), dropout=dropout
    )
    kept_bytes, debug = rng.choice(KEPT_BYTES), rng.random() < 0.7
    with running(engine, number) as backend:
        compiled = fb.compile(
            program.block, backend, threads=1, debug=debug, options={"kept_bytes": kept_bytes}
        )
        check_ways(compiled, program, rng, many)
        if not dropout:
            assert_differentiated(program, compiled)
            change(compiled, rng)  # what the step before has left must not be read
            if many:
                check_ways(compiled, program, rng, many)
        else:
            check_draws(compiled, program, rng, many)
        rarely = (4 if engine == "numpy" else 16) * (1 if many else 4)  # each of these compiles other cells
        for derivative in (assert_jvp, assert_hvp, assert_input_gradients, assert_vjp):
            if rng.randrange(rarely) == 0:
                policy = rng.choice(list(POLICIES))
                derivative(
                    fb.compile(program.block, backend, options={"policy": policy}, threads=1, debug=debug),
                    program,
                )
        if rng.randrange(rarely) == 0:
            assert_the_same_without_asides(program, backend)
        for further in (check_evaluation, check_kept, check_order):
            if rng.randrange(4 if many else 8) == 0:
                further(compiled, program)


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
    first: tuple[dict[str, Any], dict[str, Any]] | None = None
    for engine in ways(compiled, rng, many):
        for trace in engine._trace_all(program.examples):
            check_trace(engine.model, engine.lowered.tracer.policy, trace)
        if not engine.options.debug:
            leave_other_values(engine, program.examples)
        given = rng.choice([given_examples, given_plan, given_file])(engine, program)
        metrics = assert_meant(engine, given, meanings)
        loss, gradients = gradients_of(engine, given, STEP)
        if not any(compiled.model.keys):
            assert_same(np.array(loss), np.array(float(sum(m.loss for m in meanings))))
        first = first or (metrics, gradients)
        for found, right in zip((metrics, gradients), first, strict=True):
            assert found.keys() == right.keys()
            for name, value in found.items():
                assert_same(value, right[name])


def leave_other_values(program: Program, examples: Sequence[Any]) -> None:
    """Run a step with other parameters, so that a value which is read before it is computed is a wrong one."""
    origin = {name: program.params[name].copy() for name in program.params}
    for name, value in origin.items():
        program.params[name] = 1 - 2 * value
    program.value_and_grad(examples)
    for name, value in origin.items():
        program.params[name] = value


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
            fb.train.prepare(engine, program.examples, Path(folder, "examples"))
        except ExampleTypeError:
            return program.examples
        return fb.train.load_prepared(engine, Path(folder, "examples"))


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
    """Check that the block, evaluated by itself, gives what the program gives; metrics in the same order, too."""
    results = compiled.run(program.examples[:1], metrics=True)
    found = program.block.eval(program.examples[0], "numpy")
    metrics = {}
    if results.metrics:
        found, metrics = found
    assert_same(found, results[0])
    assert list(metrics) == list(results.metrics)
    for name, m in results.metrics.items():
        assert_same(metrics[name], [m.values[place, ...] for place in range(len(m))])


def check_order(compiled: Program, program: BlockProgram) -> None:
    """Check that the order and number of examples change nothing, and that an empty batch is nothing."""
    alone = [(compiled.run([x], metrics=True), gradients_of(compiled, [x], STEP)) for x in program.examples]
    order = np.random.default_rng(program.seed).integers(len(alone), size=7).tolist()
    batch = [program.examples[i] for i in order]
    results = compiled.run(batch, metrics=True)
    assert_same(list(results), [alone[i][0][0] for i in order])
    found = metrics_of(results)
    for number, i in enumerate(order):
        for name, (values, _, nodes, labels) in metrics_of(alone[i][0]).items():
            mine = np.flatnonzero(np.array(found[name][1]) == number)
            assert_same(found[name][0][mine], values)
            assert [found[name][2][at] for at in mine] == nodes
            assert [found[name][3][at] for at in mine] == labels
    loss, gradients = gradients_of(compiled, batch, STEP)
    if not any(compiled.model.keys):  # else each example of a batch draws its own numbers
        assert_same(np.array(loss), np.array(float(sum(alone[i][1][0] for i in order))))
        for name, gradient in gradients.items():
            assert_same(gradient, np.asarray(sum(alone[i][1][1][name] for i in order)))
    assert list(compiled.run([])) == []
    loss, gradients = gradients_of(compiled, [])
    assert loss == 0.0
    assert set(gradients) == {name for name, p in compiled.params.parameters.items() if p.trainable}
    for name, gradient in gradients.items():
        assert_same(gradient, np.zeros_like(compiled.params[name]))
