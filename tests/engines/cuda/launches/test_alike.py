"""Training by each way to launch leaves the parameters that kernels launched one by one leave."""

import os

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines.sums import total
from foldbatch.errors import ExampleError
from foldbatch.train import clip_by_global_norm

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("FOLDBATCH_BACKEND") != "cuda-on-cpu", reason="runs with FOLDBATCH_BACKEND=cuda-on-cpu"
    ),
    pytest.mark.filterwarnings("ignore:loss. expected a finite number"),
]
EXAMPLES = [[1, 2, 3], [4], [1, 5], [2, 2, 2, 2]]
ONES = np.ones(40, np.float32)


def _chain():
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 3)) >> fb.RNN(fb.GRUCell(40)) >> fb.GetItem(1)
    loss = fb.Dropout(0.5) >> fb.Function(ops.sum) >> fb.Loss()
    return words >> fb.AllOf(fb.Function(ops.sum), loss) >> fb.GetItem(0)


def _either():
    cases = {k: fb.GetItem(1) >> fb.Vector(40) >> fb.Linear(40, name=f"w{k}") for k in (0, 1)}
    return fb.OneOf(lambda e: e[0], cases) >> fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss()


def _steps(program, optimizer, batches, **options):
    for batch in batches:
        _, gradients = program.value_and_grad(batch)
        optimizer.update(program.params, gradients, **options)


def _sizes_differ(program):
    _steps(program, fb.Adam(lr=0.01), [EXAMPLES, EXAMPLES[:2], EXAMPLES[1:], *[EXAMPLES] * 7, EXAMPLES[:3]])


def _momentum_and_decay(program):
    _steps(program, fb.SGD(lr=0.1, momentum=0.9, weight_decay=0.1), [EXAMPLES] * 4, scale=0.25)


def _a_scale_above_1(program):
    _steps(program, fb.SGD(lr=0.001), [EXAMPLES] * 3, scale=3.0)


def _nothing_between(program):
    _steps(program, fb.train.AdaGrad(lr=0.1), [EXAMPLES, [], EXAMPLES, [[]], EXAMPLES])


def _sums_of_steps(program):
    optimizer = fb.Adam(lr=0.01)
    for _ in range(2):
        parts = [program.value_and_grad(batch)[1] for batch in (EXAMPLES[:2], EXAMPLES[2:], EXAMPLES)]
        optimizer.update(program.params, {name: total([g[name] for g in parts]) for name in parts[0]})


def _clipped(program):
    optimizer = fb.Adam(lr=0.01)
    for _ in range(3):
        gradients, _ = clip_by_global_norm(program.value_and_grad(EXAMPLES)[1], 0.1)
        optimizer.update(program.params, gradients)


def _gradients_of_the_step_before(program):
    optimizer = fb.SGD(lr=0.1)
    before = program.value_and_grad(EXAMPLES)[1]
    for _ in range(3):
        now = program.value_and_grad(EXAMPLES[:2])[1]
        optimizer.update(program.params, before)
        before = now


def _two_optimizers(program):
    first, second = fb.SGD(lr=0.1), fb.Adam(lr=0.1)
    for _ in range(3):
        gradients = program.value_and_grad(EXAMPLES)[1]
        names = list(gradients)
        first.update(program.params, {name: gradients[name] for name in names[:2]})
        second.update(program.params, {name: gradients[name] for name in names[2:]})


def _parameters_changed_between(program):
    optimizer = fb.SGD(lr=0.1)
    for _ in range(3):
        gradients, name = program.value_and_grad(EXAMPLES)[1], next(iter(program.params))
        program.params[name] = np.array(program.params[name]) * 0.5
        optimizer.update(program.params, gradients)
        gradients = program.value_and_grad(EXAMPLES)[1]
        program.params[name][...] *= 1.5
        optimizer.update(program.params, gradients)


def _runs_and_results_between(program):
    optimizer, seen = fb.SGD(lr=0.1), []
    for _ in range(3):
        loss, gradients = program.value_and_grad(EXAMPLES)
        seen += map(float, program.run(EXAMPLES[:2]))
        optimizer.update(program.params, gradients)
        made = program.step(EXAMPLES)
        optimizer.update(program.params, made.gradients)
        seen += [float(loss), float(made.loss), *map(float, made.results)]
    return seen


@pytest.mark.parametrize("engine", ["captured"])
@pytest.mark.parametrize(
    "train",
    [
        _sizes_differ,
        _momentum_and_decay,
        _a_scale_above_1,
        _nothing_between,
        _sums_of_steps,
        _clipped,
        _gradients_of_the_step_before,
        _two_optimizers,
        _parameters_changed_between,
        _runs_and_results_between,
    ],
)
def test_parameters_are_alike(train, engine):
    straight = fb.compile(_chain(), "cuda-on-cpu", launch="straight", seed=3)
    program = fb.compile(_chain(), "cuda-on-cpu", launch=engine, seed=3, debug=True)
    wanted, seen = train(straight), train(program)
    if wanted is not None:
        np.testing.assert_allclose(seen, wanted, rtol=1e-4, atol=1e-5)
    for name, value in straight.params.items():
        np.testing.assert_allclose(program.params[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ["captured"])
def test_parameters_that_no_example_reaches_stay(engine):
    programs = [fb.compile(_either(), "cuda-on-cpu", launch=e, seed=3) for e in ("straight", engine)]
    batches = [[(0, ONES)], [(0, ONES), (1, ONES)], [(1, ONES)] * 3, [(0, ONES)]]
    for program in programs:
        _steps(program, fb.Adam(lr=0.1), batches)
    for name, value in programs[0].params.items():
        np.testing.assert_allclose(programs[1].params[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ["captured"])
def test_a_batch_with_a_bad_id_changes_nothing_and_the_next_one_trains(engine):
    table = fb.Parameter([3, 40], init=1.0, name="table")
    rows = fb.Scalar("int32") >> fb.Function(lambda i: ops.gather(table, i * 2))
    block = rows >> fb.Linear(40) >> fb.Function(lambda h: ops.sum(ops.tanh(h))) >> fb.Loss()
    program, optimizer = fb.compile(block, "cuda-on-cpu", launch=engine), fb.SGD(lr=0.1)
    _steps(program, optimizer, [[0, 1]] * 2)
    before = {name: np.array(value) for name, value in program.params.items()}
    with pytest.raises(ExampleError, match="at example 1: expected ids from 0 to 2, found 4"):
        float(program.value_and_grad([0, 2, 1])[0])
    for name, value in program.params.items():
        np.testing.assert_array_equal(value, before[name])
    _steps(program, optimizer, [[1, 0]])
    assert any(not np.array_equal(value, before[name]) for name, value in program.params.items())
