"""The law above all: batched is one by one is the oracle, in values, metrics, losses and gradients.

Random programs (see `programs`) run on random data in float64, under every policy and layout, in
one batch, in threads and one by one, with schedules verified and unused memory poisoned. They are
compared to two oracles: `oracle`, which interprets blocks and knows nothing of the compiler, and
the package's own reference backend, which interprets cells. Gradients are also compared to finite
differences of the former. ``python -m tests.programs`` tries many more programs, for as long as one likes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines import threads
from foldbatch.engines.engine import ENGINES
from foldbatch.engines.planned import Planned
from foldbatch.engines.runner import Runner
from foldbatch.params import Remote
from foldbatch.program import Program
from foldbatch.scheduler.policies import find_policy
from tests.backends import TESTED
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.on_cpu import as_asked
from tests.oracle import Meaning, meaning
from tests.programs import BlockProgram, programs

TOLERANCE = 1e-9
many = settings(
    max_examples=28, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
some = settings(many, max_examples=21)


@pytest.fixture(autouse=True)
def _captured() -> Iterator[None]:
    """Let captured programs find a class for each batch, however few there are."""
    with as_asked():
        yield


UNFUSED = {
    "unfused": ("tests.engines.unfused", "numba")
}  # Numba's engine, with nothing to compile for a model


@contextmanager
def always_known() -> Iterator[None]:
    """Let Numba's engine multiply known rows before a recursion, however few there are."""
    from foldbatch.engines.numba import known_launches, known_products  # noqa: PLC0415 - they need Numba

    always = mock.patch.multiple(known_launches, FEWEST=1, LEAST=0.0)
    with always, mock.patch.object(known_products, "SMALLEST", 1):
        yield


def engines(block: fb.Block, backend: str = TESTED, **options: Any) -> Iterator[Program]:
    """Yield a program for every way of running a block on an engine; the reference last.

    They share one model and its kernels.
    """
    program = fb.compile(block, backend, threads=1, **{"debug": True, **options})
    by_depth = planned_by(program, "by_depth")
    for engine in (program, by_depth):
        yield engine
        yield run_with(engine, layout="producer")
    yield run_with(by_depth, batched=False)
    yield run_with(by_depth, threads=2)
    yield run_with(by_depth, backend="reference")


def run_with(program: Program, **options: Any) -> Program:
    """Return a program of the same model that runs with other options, by the same kernels if it can."""
    other = Program(program.lowered, replace(program.options, **options), 0)
    share_kernels(program._runner, other._runner)
    return other


def share_kernels(runner: Runner, other: Runner) -> None:
    """Let a runner of the same model use the kernels of the first, which takes longer to make than to run."""
    if (other.options.backend, other.options.debug) == (runner.options.backend, runner.options.debug):
        other.engine = runner.engine


def planned_by(program: Program, policy: str) -> Program:
    """Return a program of the same model that groups calls by another policy, as its tracer does."""
    tracer = replace(program.lowered.tracer, policy=find_policy(policy))
    other = Program(replace(program.lowered, tracer=tracer), replace(program.options, policy=policy), 0)
    share_kernels(program._runner, other._runner)
    return other


def assert_same(found: Any, right: Any) -> None:
    """Check that two results are the same in structure and types, and in numbers to 9 digits."""
    if isinstance(right, tuple | list):
        assert type(found) is type(right)
        assert len(found) == len(right)
        for a, b in zip(found, right, strict=True):
            assert_same(a, b)
    elif isinstance(right, np.ndarray | np.generic | Remote):
        assert type(found) is type(right) or isinstance(found, Remote) or isinstance(right, Remote)
        assert (found.shape, found.dtype) == (right.shape, right.dtype)
        scale = max(1.0, float(np.abs(right).max(initial=0)))
        np.testing.assert_allclose(found, right, rtol=TOLERANCE, atol=TOLERANCE * scale)
    else:
        assert found is right or found == right


def gradients_of(
    program: Program, examples: Sequence[Any] | Planned, step: int | None = None
) -> tuple[float, dict[str, Any]]:
    """Return the loss and the gradients as arrays."""
    loss, gradients = program.value_and_grad(examples, step=step)
    return loss, {name: g.dense() if isinstance(g, fb.SparseRows) else g for name, g in gradients.items()}


def metrics_of(results: Any) -> dict[str, Any]:
    """Return all that the metrics hold; one that was never visited counts for nothing."""
    found = {}
    for name, m in results.metrics.items():
        if len(m):
            found[name] = m.values, m.examples.tolist(), m.nodes.tolist(), m.labels or [None] * len(m)
    return found


def assert_meant(program: Program, examples: Sequence[Any] | Planned, meanings: Sequence[Meaning]) -> Any:
    """Check results, losses and metrics against those of the blocks' interpreter."""
    results = program.run(examples, losses=True, metrics=True)
    assert_same(list(results), [m.result for m in meanings])
    assert_same(np.array(results.loss), np.array(float(sum(m.loss for m in meanings))))
    found = metrics_of(results)
    for name in {name for m in meanings for name in m.metrics}:
        right = [(i, str(label), value) for i, m in enumerate(meanings) for value, label in m.metrics[name]]
        values, numbers, _, labels = found[name]
        for i, label, value in zip(numbers, labels, values, strict=True):
            assert (i, str(label)) == right[0][:2]
            assert_same(np.asarray(value), np.asarray(right.pop(0)[2]))
        assert not right  # and so they are in the order of visits
    return found


def leave_other_values(program: Program, examples: Sequence[Any]) -> None:
    """Run a step with other parameters, so that a value which is read before it is computed is a wrong one."""
    origin = {name: program.params[name].copy() for name in program.params}
    for name, value in origin.items():
        program.params[name] = 1 - 2 * value
    program.value_and_grad(examples)
    for name, value in origin.items():
        program.params[name] = value


def assert_lawful(program: BlockProgram, backend: str = TESTED) -> None:
    """Check that all engines agree with the interpreter and with each other.

    Some programs compute again what they have no room to keep. Memory is full of NaN, or of the values of a
    step with other parameters.
    """
    examples = program.examples
    options = {"kept_bytes": (None, 0, 8, 40)[program.seed % 4], "debug": program.seed // 4 % 4 > 0}
    meanings = [meaning(program.block, example) for example in examples]
    first: tuple[Any, Any] | None = None
    with mock.patch.multiple(threads, CALLS_PER_PART=1, MULTIPLICATIONS_PER_PART=1):
        for engine in engines(program.block, backend, **options):
            if not engine.options.debug and engine.options.backend != "reference":
                leave_other_values(engine, examples)
            metrics = assert_meant(engine, examples, meanings)
            loss, gradients = gradients_of(engine, examples)
            assert_same(np.array(loss), np.array(float(sum(m.loss for m in meanings))))
            if first is None:
                first = metrics, gradients
            assert metrics.keys() == first[0].keys()
            assert gradients.keys() == first[1].keys()
            for name in metrics:
                assert_same(metrics[name], first[0][name])
            for name in gradients:
                assert_same(gradients[name], first[1][name])


def assert_differentiated(program: BlockProgram, compiled: Program | None = None) -> None:
    """Check the gradient along a random direction against a difference of the interpreter's losses.

    Where numbers are compared a loss may jump, next to the point or at it. A difference of a shorter step
    misses the one; of the other it is as many times greater, and there is no gradient. The loss may also bend
    at the point; then the gradient is that of either side.
    """
    compiled = compiled or fb.compile(program.block, TESTED)
    loss, gradients = gradients_of(compiled, program.examples)
    rng = np.random.default_rng(program.seed)
    directions = {name: rng.normal(size=g.shape) for name, g in gradients.items()}
    origin = {name: compiled.params[name].copy() for name in gradients}

    def at(distance: float) -> float:
        for name, direction in directions.items():
            compiled.params[name] = origin[name] + distance * direction
        return sum(meaning(program.block, example).loss for example in program.examples)

    def difference(step: float) -> float:
        return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)

    found = sum(float(np.vdot(g, directions[name])) for name, g in gradients.items())
    right, closer = difference(1e-4), difference(1e-6)
    at(0.0)
    if abs(closer) > 50 * abs(right) > 50:
        return
    scale = max(1.0, abs(loss))
    near = [
        pytest.approx(right, rel=1e-6, abs=1e-6 * scale),
        pytest.approx(closer, rel=1e-5, abs=1e-5 * scale),
    ]
    if found not in near:
        sides = [(at(step) - at(0.0)) / step for step in (1e-6, -1e-6)]
        if abs(sides[0] - sides[1]) > 0.01 * max(1.0, *map(abs, sides)):
            near = [pytest.approx(side, rel=1e-4, abs=1e-4 * scale) for side in sides]
    assert found in near


@many
@given(programs())
def test_batched_is_one_by_one_is_the_oracle(program):
    assert_lawful(program)


@pytest.mark.numba
@pytest.mark.skipif(not find_spec("numba"), reason="numba is not installed")
@many
@given(programs())
def test_the_same_holds_of_the_engine_that_walks_launch_tables_in_compiled_code(program):
    with mock.patch.dict(ENGINES, UNFUSED), always_known():
        assert_lawful(program, "unfused")


@pytest.mark.numba
@pytest.mark.skipif(not find_spec("numba"), reason="numba is not installed")
@settings(many, max_examples=16)
@given(programs())
def test_loops_that_numba_compiles_are_lawful(program):
    with always_known():
        assert_lawful(program, "numba")


@needs_compiler
@pytest.mark.skipif(TESTED == "cuda-on-cpu", reason="all laws are checked on it")
@settings(many, max_examples=2)
@given(programs())
def test_the_kernels_of_a_gpu_are_lawful(program):
    assert_lawful(program, "cuda-on-cpu")


@settings(some, max_examples=24)
@given(programs(examples=2))
def test_a_block_evaluates_as_its_program_runs(program):
    """The same result, and the same metrics in the same order: of names, and of the values of each."""
    results = fb.compile(program.block, TESTED).run(program.examples, metrics=True)
    for number, example in enumerate(program.examples):
        found = program.block.eval(example)
        metrics = {}
        if results.metrics:
            found, metrics = found
        assert_same(found, results[number])
        assert list(metrics) == list(results.metrics)
        for name, m in results.metrics.items():
            places = np.flatnonzero(m.examples == number)
            assert_same(metrics[name], [m.values[place, ...] for place in places])
            assert m.nodes[places].tolist() == list(range(len(places)))


@some
@given(programs(size=40))
def test_gradients_are_finite_differences(program):
    assert_differentiated(program)


@some
@given(programs())
def test_the_order_and_number_of_examples_change_nothing(program):
    together = fb.compile(program.block, TESTED, threads=1, debug=True)
    alone = run_with(together, backend="reference")
    facts = [
        (alone.run([example], metrics=True), gradients_of(alone, [example])) for example in program.examples
    ]
    rng = np.random.default_rng(program.seed)
    order = rng.integers(len(facts), size=7).tolist()
    batch = [program.examples[i] for i in order]
    results = together.run(batch, metrics=True)
    assert_same(list(results), [facts[i][0][0] for i in order])
    metrics = metrics_of(results)
    for number, i in enumerate(order):
        for name, (values, _, nodes, labels) in metrics_of(facts[i][0]).items():
            mine = np.flatnonzero(np.array(metrics[name][1]) == number)
            assert_same(metrics[name][0][mine], values)
            assert [metrics[name][2][at] for at in mine] == nodes
            assert [metrics[name][3][at] for at in mine] == labels
    loss, gradients = gradients_of(together, batch)
    assert_same(np.array(loss), np.array(float(sum(facts[i][1][0] for i in order))))
    for name, gradient in gradients.items():
        assert_same(gradient, np.asarray(sum(facts[i][1][1][name] for i in order)))


@settings(some, max_examples=20)
@given(programs(dropout=True))
def test_dropout_depends_on_the_step_and_the_call_alone(program):
    meanings = [meaning(program.block, example) for example in program.examples]
    first: dict[int, Any] = {}
    with mock.patch.multiple(threads, CALLS_PER_PART=1, MULTIPLICATIONS_PER_PART=1):
        for engine in engines(program.block):
            planned = engine.plan(program.examples)
            assert_meant(engine, planned, meanings)  # inference drops nothing
            for step in (3, 7, 3):
                loss, gradients = gradients_of(engine, planned, step)
                right = first.setdefault(step, (np.array(loss), gradients))
                assert_same(np.array(loss), right[0])
                assert gradients.keys() == right[1].keys()
                for name in gradients:
                    assert_same(gradients[name], right[1][name])


@settings(some, max_examples=12)
@given(programs())
def test_an_empty_batch_is_nothing(program):
    for engine in engines(program.block):
        assert list(engine.run([])) == []
        loss, gradients = gradients_of(engine, [])
        assert loss == 0.0
        assert set(gradients) == {name for name, p in engine.params.parameters.items() if p.trainable}
        for name, gradient in gradients.items():
            assert_same(gradient, np.zeros_like(engine.params[name]))


def _table() -> fb.Block:
    return fb.Scalar("int32") >> fb.Embedding(4, 2, "glorot_normal", dtype="float64")


def _read_twice() -> fb.Block:
    table = _table()
    return fb.Record((table, table)) >> fb.Function(lambda a, b: ops.sum(ops.tanh(a - b))) >> fb.Loss()


def _value_in_two_cells() -> fb.Block:
    square = fb.ForwardDeclaration("float64", "float64", "square")
    square.resolve_to(fb.Function(lambda x: x * x))
    whole = _table() >> fb.Linear(1) >> fb.Function(lambda x: ops.tanh(x[0]))
    return whole >> fb.AllOf(fb.Loss("itself"), square() >> fb.Loss("its square"))


def _parameter_alone() -> fb.Block:
    weight = fb.Parameter(fb.types.TensorType((), "float64"), 0.5, "w")
    return fb.FromTensor(weight) >> fb.Function(lambda w: w * w) >> fb.Loss()


def _constant_logits() -> fb.Block:
    logits = fb.Parameter(fb.types.TensorType((3,), "float64"), "normal", "logits")
    return fb.Scalar("int32") >> fb.Function(lambda y: ops.cross_entropy(logits, y)) >> fb.Loss()


def _mean_of_weights() -> fb.Block:
    weights = fb.Parameter(fb.types.TensorType((3,), "float64"), "normal", "weights")
    mixed = fb.Function(lambda x: ops.sum(weights * ops.mean(x) + ops.mean(weights)))
    return fb.Vector(2, "float64") >> fb.Linear(2) >> mixed >> fb.Loss()


def _collected_around_a_loop() -> fb.Block:
    seen = fb.Scalar("float64") >> fb.Collect()
    return fb.Collected(fb.Record((seen, fb.Map(seen), seen))) >> fb.GetItem(1)


def _collected_around_a_call() -> fb.Block:
    seen = fb.Scalar("float64") >> fb.Collect()
    declared = fb.ForwardDeclaration(output_type="float64")
    declared.resolve_to(seen)
    return fb.Collected(fb.Record((seen, declared(), seen))) >> fb.GetItem(1)


@pytest.mark.parametrize("seed", [4, 1], ids=["with room", "without room, after another step"])
@pytest.mark.parametrize(
    ("block", "examples"),
    [
        pytest.param(
            _read_twice, [(3, 2), (0, 0)], id="a table read twice by one cell, its gradients of one buffer"
        ),
        pytest.param(_value_in_two_cells, [1, 3, 1], id="a value computed by one cell, a loss of another"),
        pytest.param(
            _parameter_alone, [None, None], id="a loss without axes that is the same for all examples"
        ),
        pytest.param(
            _constant_logits, [0, 2, 2], id="a cross-entropy of logits that are the same for all examples"
        ),
        pytest.param(_mean_of_weights, [[1, 2], [3, 4]], id="what both directions need of weights alone"),
        pytest.param(_collected_around_a_loop, [(1, [2, 3], 4)], id="what is collected before a loop"),
        pytest.param(_collected_around_a_call, [(1, 2, 3)], id="what is collected before a call"),
    ],
)
def test_what_once_failed_is_lawful(block, examples, seed):
    program = BlockProgram(block(), examples, seed)
    assert_lawful(program)
    assert_differentiated(program)
