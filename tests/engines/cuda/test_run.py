"""A batch under way: what is brought and read, and errors that are raised when somebody looks."""

from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines.cuda.run import CudaRun
from foldbatch.engines.launch import OutOfRangeError
from foldbatch.errors import ExampleError, NotFiniteWarning, ParameterError
from tests.engines.cuda.checked import driven
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.on_cpu import always_captured
from tests.engines.cuda.trees import SIZE, TREES, program

pytestmark = needs_compiler


def forward(made: fb.Program, examples: Any, *, training: bool = True, memory: Any = None) -> CudaRun:
    engine, batch = made.engine, fb.program.schedule(made, examples)
    run: CudaRun = engine.forward(
        engine.ready(batch, training=training), batch.feeds, memory or engine.memory()
    )
    return run


def test_a_batch_is_what_numpy_makes_of_it() -> None:
    """Its losses, metrics, values and gradients; the same twice."""
    right = forward(program("numpy"), TREES)
    expected = {
        p.name: np.asarray(g) if not hasattr(g, "dense") else g.dense() for p, g in right.backward().items()
    }
    for _ in range(2):
        run = forward(program(), TREES)
        for key, loss in run.loss_sums().items():
            assert float(loss) == pytest.approx(float(np.sum(right.losses[key])), rel=1e-12)
        for key, metric in run.metrics.items():
            np.testing.assert_allclose(metric, right.metrics[key], rtol=1e-12)
        numbers = range(len(fb.program.schedule(program(), TREES).merged.trace.calls[0]))
        for found, value in zip(run.fetch(numbers), right.fetch(numbers), strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-12)
        gradients = {p.name: g for p, g in run.backward().items()}
        assert gradients.keys() == expected.keys()
        for name, gradient in gradients.items():
            dense = gradient.dense() if hasattr(gradient, "dense") else gradient
            np.testing.assert_allclose(np.asarray(dense), expected[name], rtol=1e-12)
        assert run.launches == right.launches


def test_gradients_of_a_table_are_rows_in_order() -> None:
    gradients = forward(program(), TREES).backward()
    (rows,) = [gradient for gradient in gradients.values() if isinstance(gradient, fb.params.SparseRows)]
    assert rows.rows.tolist() == [0, 1, 2]
    assert rows.shape == (4, SIZE)


def test_cotangents_of_values_are_added() -> None:
    """Those that the caller gives, also several of one value, to those of the loss."""
    both = []
    for backend in ("numpy", "cuda-on-cpu"):
        run = forward(program(backend), TREES)
        g = np.arange(3.0)
        numbers = fb.program.schedule(program(backend), TREES).merged.trace.calls[0][:, 0].tolist()
        seeds = [(numbers[-1], g), (numbers[0], g + 1), (numbers[-1], g * 2)]
        both.append({p.name: g for p, g in run.backward(seeds).items()})
    for name, right in both[0].items():
        found = both[1][name]
        right, found = (x.dense() if hasattr(x, "dense") else x for x in (right, found))
        np.testing.assert_allclose(np.asarray(found), right, rtol=1e-12)


def test_a_batch_without_examples_has_no_loss() -> None:
    loss, gradients = program().value_and_grad([])
    assert float(loss) == 0
    assert all(not np.asarray(getattr(g, "values", g)).any() for g in gradients.values())
    assert list(program().run([])) == []


def test_backward_needs_a_forward_that_was_for_training() -> None:
    with pytest.raises(AssertionError, match="for training"):
        forward(program(), TREES, training=False).backward()


def computed_ids() -> fb.Program:
    """Return a program whose ids a cell computes, so that a kernel checks them."""
    table = fb.Parameter([3, 2], np.arange(6).reshape(3, 2), "table")
    look = fb.Function(lambda i: ops.gather(table, i + 1))
    block = fb.Map(fb.Scalar("int32") >> look >> fb.AllOf(fb.Identity(), fb.Function(ops.sum) >> fb.Loss()))
    return fb.compile(block, "cuda-on-cpu", threads=1)


def test_an_id_out_of_range_is_an_error_when_somebody_looks() -> None:
    """At the loss, at a value, and for the gradient of the table; each raises it again."""
    made = computed_ids()
    run = forward(made, [[0, 1], [0]])
    (loss,) = run.loss_sums().values()
    assert float(loss) == (2 + 3) + (4 + 5) + (2 + 3)
    seen = []

    @contextmanager
    def within() -> Any:
        seen.append("within")
        yield

    run = forward(made, [[0, 1], [2]])
    run.within = within
    (loss,) = run.loss_sums().values()
    for look in (lambda: float(loss), lambda: run.fetch([0]), run.backward):
        with pytest.raises(OutOfRangeError) as error:
            look()
        assert (error.value.id, error.value.size, error.value.cell) == (3, 3, 0)
    assert seen


def test_gradients_of_computed_ids_are_those_of_the_examples() -> None:
    (gradient,) = forward(computed_ids(), [[0, 1], [0]]).backward().values()
    assert gradient.rows.tolist() == [1, 2]
    assert np.asarray(gradient.values).tolist() == [[2, 2], [1, 1]]


def test_a_run_names_the_example_of_an_id_out_of_range() -> None:
    with pytest.raises(ExampleError, match="example 1"):
        list(computed_ids().run([[0, 1], [2]]))


def test_a_report_names_it_too() -> None:
    with pytest.raises(ExampleError, match="example 1"):
        computed_ids().describe([[0, 1], [2]])


def due(launch: str = "straight") -> fb.Program:
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 3))
    block = words >> fb.RNN(fb.GRUCell(4)) >> fb.GetItem(1) >> fb.Function(ops.sum) >> fb.Loss()
    return fb.compile(block, "cuda-on-cpu", options={"share": None}, seed=3, launch=launch)


EXAMPLES = [[1, 2, 3], [4], [1, 5], [2, 2, 2, 2]]


@pytest.mark.parametrize("launch", ["straight", "captured"])
def test_a_step_is_launched_when_somebody_looks_and_an_update_goes_with_it(launch: str) -> None:
    with driven() as driver, always_captured():
        made, optimizer = due(launch), fb.Adam(lr=0.01)
        for _ in range(3):
            optimizer.update(made.params, made.value_and_grad(EXAMPLES)[1])
        begin = len(driver.calls)
        loss, gradients = made.value_and_grad(EXAMPLES)
        assert driver.enqueued(begin) == []
        optimizer.update(made.params, gradients)
        asked = driver.enqueued(begin)
        assert (asked.count("copy_in"), asked.count("copy_out")) == (1, 1)
        assert ("replay" in asked) == (launch == "captured")
        begin = len(driver.calls)
        float(loss)
        assert driver.enqueued(begin) == []


@pytest.mark.parametrize("launch", ["straight", "captured"])
@pytest.mark.parametrize("kind", ["step", "run"])
def test_results_come_with_the_status_in_one_copy(launch: str, kind: str) -> None:
    """Of a step both passes are one graph with its results in it; nobody waits twice."""
    trees = fb.compile(two_results(), "numpy", seed=3, threads=1)
    expected = [np.asarray(part) for result in trees.run(EXAMPLES) for part in result]
    with driven() as driver, always_captured():
        made = fb.compile(two_results(), "cuda-on-cpu", seed=3, threads=1, launch=launch)

        def run() -> Any:
            return made.step(EXAMPLES).results if kind == "step" else made.run(EXAMPLES)

        for _ in range(3):
            run()
        begin = len(driver.calls)
        results = run()
        asked = driver.enqueued(begin)
        assert (asked.count("copy_in"), asked.count("copy_out")) == (1, 1)
        assert len(asked) == 3 if launch == "captured" else "replay" not in asked
        assert [name for name, _ in driver.calls[begin:]].count("synchronize") == 1
        for result in (results, run()):
            for part, right in zip([p for r in result for p in r], expected, strict=True):
                np.testing.assert_allclose(part, right, rtol=1e-5)


@pytest.mark.parametrize("warmed", [False, True])
def test_a_planned_batch_computes_no_losses_that_are_not_asked_for(warmed: bool) -> None:
    """It launches no more than a batch of the model without them, which has other cells; `warm` knows of it."""
    with driven() as driver:
        made = fb.compile(
            beside(), "cuda-on-cpu", seed=3, threads=1, launch="captured" if warmed else "straight"
        )
        planned, asked = made.plan(EXAMPLES), []
        if warmed:
            made.warm(EXAMPLES, batch_size=len(EXAMPLES))
        for examples in (EXAMPLES, planned):
            for _ in range(3):
                results = made.run(examples)
            begin = len(driver.calls)
            results = made.run(examples)
            asked.append(driver.enqueued(begin))
            expected = made.run(examples, losses=True)
            np.testing.assert_allclose(np.array([*results]), np.array([*expected]), rtol=1e-6)
            assert float(expected.loss) == pytest.approx(float(made.value_and_grad(EXAMPLES)[0]))
        assert ("replay" in asked[1]) == warmed
        assert asked[0] == asked[1] or warmed


def beside() -> Any:
    """A block whose loss is of a cell of its own, which reads a result."""
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 3))
    states = {True: words >> fb.Sum(), False: words >> fb.RNN(fb.GRUCell(3)) >> fb.GetItem(1)}
    out = fb.Linear(2)
    loss = fb.Function(lambda h: ops.sum(out(h) ** 2)) >> fb.Loss()
    return fb.OneOf(lambda x: len(x) > 2, states) >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0)


def two_results() -> Any:
    """A block whose results lie in two arenas: a state and its sum, one beside the other."""
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 3))
    state = words >> fb.RNN(fb.GRUCell(4)) >> fb.GetItem(1)
    total = fb.Function(ops.sum)
    return state >> fb.AllOf(fb.Identity(), total, total >> fb.Loss()) >> fb.Slice(stop=2)


def test_a_step_has_one_launch_for_all_flags_and_one_for_all_updates() -> None:
    """However many gradients there are: of a table, of weights and of biases."""
    counts = []
    for layers in (1, 3):
        with driven() as driver:
            words = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 3)) >> fb.Sum()
            for _ in range(layers):
                words = words >> fb.Linear(3, bias=False)
            made = fb.compile(words >> fb.Function(ops.sum) >> fb.Loss(), "cuda-on-cpu", threads=1)
            optimizer = fb.train.LazyAdam(lr=0.01)
            for _ in range(2):
                begin = len(driver.calls)
                optimizer.update(made.params, made.value_and_grad(EXAMPLES)[1])
            launched = [given[0] for name, given in driver.calls[begin:] if name == "launch" and given]
            named = made.engine.device.names()
            counts.append(len(made.params))
            assert [named.get(id(kernel)) for kernel in launched].count("flagged") == 1
            assert [named.get(id(kernel)) for kernel in launched].count("step") == 1
    assert counts == [2, 4]


def test_results_between_both_passes_are_computed_and_change_nothing() -> None:
    plain, looked = due(), due()
    wanted, made = plain.value_and_grad(EXAMPLES)[1], looked.step(EXAMPLES)
    for name, gradient in wanted.items():
        found, right = (g.dense() if hasattr(g, "dense") else g for g in (made.gradients[name], gradient))
        np.testing.assert_array_equal(np.asarray(found), np.asarray(right))


def test_gradients_that_are_not_finite_change_nothing() -> None:
    made, optimizer = due(), fb.Adam(lr=0.01)
    optimizer.update(made.params, made.value_and_grad(EXAMPLES)[1])
    name = next(name for name, value in made.params.items() if value.ndim == 2)
    made.params[name][...] = np.inf
    loss, gradients = made.value_and_grad(EXAMPLES)
    optimizer.update(made.params, gradients)
    with pytest.raises(ParameterError, match="finite"), pytest.warns(NotFiniteWarning):
        _ = float(loss), made.params[name]


@pytest.mark.parametrize("change", ["none", "an array of the library", "in place"])
def test_a_backward_pass_that_ran_by_itself_is_looked_at_by_its_update(change: str) -> None:
    """So is a gradient that was changed after its batch had told that it is finite."""
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 3))
    block = words >> fb.RNN(fb.GRUCell(4)) >> fb.GetItem(1) >> fb.AllOf(fb.Function(ops.sum) >> fb.Loss())
    made, optimizer = fb.compile(block, "cuda-on-cpu", seed=3), fb.SGD(lr=0.01)
    if change == "none":
        huge = fb.Function(lambda h: ops.sum(ops.exp(1000 * ops.exp(h))))
        made = fb.compile(words >> fb.Sum() >> huge, "cuda-on-cpu", seed=3)
        gradients = made.vjp(EXAMPLES, [np.float32(1)] * len(EXAMPLES)).gradients
    else:
        gradients = made.step(EXAMPLES).gradients
        (name,) = [name for name in gradients if name.endswith("recurrent")]
        if change == "in place":
            gradients[name] *= np.float32(np.nan)
        else:
            gradients[name].native[0] = np.nan
    before = {name: np.array(value) for name, value in made.params.items()}
    optimizer.update(made.params, gradients)
    with pytest.raises(ParameterError, match="finite"):
        _ = [np.asarray(made.params[name]) for name in before]
    for name, value in before.items():
        np.testing.assert_array_equal(np.asarray(made.params[name]), value)
