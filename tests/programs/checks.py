"""One random program, checked in every way: the float64 oracle, and all that must not change what it computes.

The number of a program decides everything: the blocks, the examples, and which ways of running it are tried.
"""

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

import foldbatch as fb
from foldbatch.engines import budget
from foldbatch.params.parameters import dense
from foldbatch.planning.layout import LAYOUTS
from foldbatch.planning.policies import POLICIES
from foldbatch.planning.sharing import SHARES
from foldbatch.program.program import Program
from tests.backends import running
from tests.derivative_checks import assert_hvp, assert_input_gradients, assert_jvp, assert_vjp
from tests.model.fitting import check_trace
from tests.program.test_variants import assert_the_same_without_asides
from tests.programs import BlockProgram, drawn
from tests.programs.comparing import (
    assert_differentiated,
    assert_meant,
    assert_same,
    bounded,
    gradients_of,
    leave_other_values,
    metrics_of,
    planned_by,
    run_with,
)
from tests.second_checks import assert_second
from tests.walks import WalkProgram, drawn_of_both, drawn_walk

AnyProgram = BlockProgram | WalkProgram
SIZES = (15, 15, 30)  # the most blocks, where many programs are to be checked
STEP = 5  # of training: what dropout draws


DOORS = {"blocks": drawn, "functions": drawn_walk, "both": drawn_of_both}  # what makes a random program


def check(number: int, engine: str, door: str = "blocks", *, many: bool = True) -> None:
    """Check the random program of a number on an engine.

    Args:
        number: decides everything.
        engine: its name.
        door: whether the program is of blocks, or a plain function.
        many: run it in six ways with two sets of parameters; else as compiled and in one other way, with one set.

    Raises:
        Exception: whatever goes wrong; an AssertionError where something differs.
    """
    rng = Random(number)
    dropout = rng.random() < 0.2
    program = DOORS[door](
        rng.randrange(2**32), 10**6, size=rng.choice([15, 30, 45] if many else SIZES), dropout=dropout
    )
    debug = rng.random() < 0.7
    with running(engine, number) as backend:
        compiled = fb.compile(program.block, backend, threads=1, debug=debug)
        if isinstance(program, WalkProgram) and (many or engine != "cuda-on-ptx" or number % 8 == 0):
            check_learning(compiled, program, rng)
        check_ways(compiled, program, rng, many)
        if not dropout:
            assert_differentiated(program, compiled)
            change(compiled, rng)  # what the step before has left must not be read
            if many:
                check_ways(compiled, program, rng, many)
        else:
            check_draws(compiled, program, rng, many)
        rarely = (4 if engine == "numpy" else 16) * (1 if many else 4)  # each of these compiles other cells
        narrow = any(feed.type.dtype == "float32" for feeds in compiled.model.feeds for feed in feeds)
        of_data = (
            [] if narrow else [assert_input_gradients, assert_vjp, assert_second]
        )  # float32 is too coarse for differences
        for derivative in (assert_jvp, assert_hvp, *of_data):
            if rng.randrange(rarely) == 0:
                policy = rng.choice(list(POLICIES))
                options = {"policy": policy}
                made = fb.compile(program.block, backend, options=options, threads=1, debug=debug)
                made.warm(program.examples)
                derivative(made, program)
        if rng.randrange(rarely) == 0:
            assert_the_same_without_asides(program, backend)
        for further in FURTHER[door]:
            if rng.randrange(4 if many else 8) == 0:
                further(compiled, program)


def change(compiled: Program, rng: Random) -> None:
    draws = np.random.default_rng(rng.randrange(2**32))
    for name in compiled.params:
        compiled.params[name] = draws.normal(0.0, 0.6, compiled.params[name].shape)


def ways(compiled: Program, program: AnyProgram, rng: Random, many: bool) -> Iterator[Program]:
    """Yield programs of one model that run it in several ways, the one that was compiled first, the oracle last."""
    yield compiled
    rows, share = rng.choice([1, budget.CALLS_PER_LEVEL]), rng.choice([0.2, 0.4, 0.7])
    if rng.randrange(2 if compiled.engine.name == "numpy" else 8) == 0:  # it compiles cells once more
        with mock.patch.object(budget, "CALLS_PER_LEVEL", rows):
            yield bounded(compiled, program.examples, share)
    for _ in range(3 if many else rng.randrange(2)):
        other = planned_by(compiled, rng.choice(list(POLICIES)))
        layout, share = rng.choice(list(LAYOUTS)), rng.choice(list(SHARES))
        yield run_with(other, layout=layout, share=share, threads=rng.choice([1, 2, 4]))
    if many or rng.randrange(8) == 0:
        yield run_with(compiled, batched=False)
        yield run_with(compiled, backend="reference")


def check_ways(compiled: Program, program: AnyProgram, rng: Random, many: bool) -> None:
    """Check values, metrics, losses and gradients in several ways, of examples, plans and prepared ones."""
    meanings = [program.meant(example) for example in program.examples]
    first: tuple[dict[Any, Any], dict[Any, Any]] | None = None
    for engine in ways(compiled, program, rng, many):
        for trace in engine._trace_all(program.examples):
            check_trace(engine.model, engine.lowered.policy, trace)
        if not engine.options.debug:
            leave_other_values(engine, program.examples)
        given = rng.choice([given_examples, given_plan, given_prepared])(engine, program)
        metrics = assert_meant(engine, given, meanings)
        loss, named = gradients_of(engine, given, STEP)
        gradients = {engine.params.parameters[name]: gradient for name, gradient in named.items()}
        if not any(compiled.model.keys):
            assert_same(np.array(loss), np.array(float(sum(m.loss for m in meanings))))
        first = first or (metrics, gradients)
        for found, right in zip((metrics, gradients), first, strict=True):
            assert found.keys() == right.keys()
            for name, value in found.items():
                assert_same(value, right[name])


def given_examples(engine: Program, program: AnyProgram) -> Any:
    return program.examples


def given_plan(engine: Program, program: AnyProgram) -> Any:
    return engine.plan(program.examples)


def given_prepared(engine: Program, program: AnyProgram) -> Any:
    return pickle.loads(pickle.dumps(engine.prepare(program.examples)))


def check_draws(compiled: Program, program: AnyProgram, rng: Random, many: bool) -> None:
    """Check that what a step draws depends on the step and the call alone."""
    first: dict[int, Any] = {}
    for engine in ways(compiled, program, rng, many):
        for step in (3, 7, 3):
            found, named = gradients_of(engine, program.examples, step)
            mine = {engine.params.parameters[name]: gradient for name, gradient in named.items()}
            loss, gradients = first.setdefault(step, (found, mine))
            assert_same(np.array(found), np.array(loss))
            for parameter, gradient in gradients.items():
                assert_same(mine[parameter], gradient)


def check_kept(compiled: Program, program: AnyProgram) -> None:
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


def check_evaluation(compiled: Program, program: AnyProgram) -> None:
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


def check_order(compiled: Program, program: AnyProgram) -> None:
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
    read = {*compiled.model.parameters}
    of_model = {name for name, p in compiled.params.parameters.items() if p.trainable and p in read}
    assert set(gradients) == of_model
    for name, gradient in gradients.items():
        assert_same(gradient, np.zeros_like(compiled.params[name]))


def check_learning(compiled: Program, program: WalkProgram, rng: Random) -> None:
    """Check that what a batch yields does not depend on the order in which the walk was learnt, to the bit.

    After it the program has learnt all that its examples show.
    """
    other = fb.compile(program.block, compiled.options.backend, threads=1, debug=compiled.options.debug)
    other.warm(rng.sample(program.examples, len(program.examples)))
    for example in rng.sample(program.examples, len(program.examples)):
        compiled.value_and_grad([example])
    assert [cell.name for cell in compiled.model.cells] == [cell.name for cell in other.model.cells]
    (loss, found), (same, right) = (
        one._runner.value_and_grad(one._trace_all(program.examples), STEP) for one in (compiled, other)
    )
    assert loss == same
    for parameter, gradient in right.items():
        np.testing.assert_array_equal(dense(found[parameter]), dense(gradient))
    for one, twin in zip(compiled.run(program.examples), other.run(program.examples), strict=True):
        assert_same(one, twin, exact=True)


def check_eagerly(compiled: Program, program: WalkProgram) -> None:
    """Check that each example, run at once by `Program.debug`, gives what a batch gives."""
    results = compiled.run(program.examples, losses=True, metrics=True)
    seen = [compiled.debug(example) for example in program.examples]
    assert_same([one.result for one in seen], list(results))
    assert_same(np.array(float(sum(one.loss for one in seen))), np.array(float(results.loss)))
    for name, (values, numbers, _, labels) in metrics_of(results).items():
        right = [(i, *visit) for i, one in enumerate(seen) for visit in one.metrics.get(name, [])]
        assert numbers == [i for i, _, _ in right]
        assert list(map(str, labels)) == [str(label) for _, _, label in right]
        for value, (_, array, _) in zip(values, right, strict=True):
            assert_same(np.asarray(value), np.asarray(array))


def check_after_an_error(compiled: Program, program: WalkProgram) -> None:
    """Check that an example that fails leaves nothing behind."""
    before = compiled.value_and_grad(program.examples, step=STEP)[0]
    for wrong in (None, object(), [], {"kind": None, "x": 7}):
        with suppress(Exception):
            compiled.run([*program.examples[:1], wrong, *program.examples])
    after, _ = gradients_of(compiled, program.examples, STEP)
    assert_same(np.array(after), np.array(before))


def check_few(compiled: Program, program: AnyProgram) -> None:
    """Few examples that run as they were noted, alone too, make to the bit what they make as any batch."""
    few, any_batch = (fb.compile(program.block, compiled.options.backend, threads=1) for _ in range(2))
    any_batch._deciding.run_small = lambda *_: None
    examples = program.examples
    for batch in (examples, examples, examples[-1:], examples):
        assert_same([*few.run(batch)], [*any_batch.run(batch)], exact=True)


FURTHER: dict[str, Sequence[Any]] = {
    "blocks": (check_evaluation, check_kept, check_order, check_few),
    "functions": (check_eagerly, check_after_an_error, check_order, check_few),
    "both": (check_eagerly, check_after_an_error, check_order, check_few),
}
