"""Runs compute what they are asked for, and nothing else; a step computes all of it in one pass."""

import numpy as np
import pytest
from hypothesis import given, settings

import foldbatch as fb
from foldbatch.errors import ExampleKeyError, NotAskedError
from foldbatch.params.parameters import dense
from tests.backends import TESTED
from tests.programs import BlockProgram, programs
from tests.programs.comparing import assert_same, gradients_of, many, metrics_of

DATA = [{"x": [i, 1], "y": 2 * i} for i in range(8)]
UNLABELLED = [{"x": example["x"]} for example in DATA]


def model() -> fb.Block:
    """A linear model with two losses and a metric of each prediction."""
    guess = fb.GetItem("x") >> fb.Vector(2) >> fb.Linear(1, name="layer") >> fb.Function(fb.ops.sum)
    error = fb.Function(lambda x, y: (x - y) ** 2) >> fb.AllOf(fb.Loss("error"), fb.Metric("seen"))
    size = fb.GetItem(0) >> fb.Function(lambda x: x * x) >> fb.Loss("size")
    return (
        fb.AllOf(guess, fb.GetItem("y") >> fb.Scalar())
        >> fb.AllOf(fb.GetItem(0), error, size)
        >> fb.GetItem(0)
    )


def assert_the_same_without_asides(program: BlockProgram, backend: str) -> None:
    """Check that results do not depend on what is asked for, nor on data that only losses and metrics read."""
    compiled = fb.compile(program.block, backend)
    full = compiled.run(program.examples, losses=True, metrics=True)
    for examples in (program.examples, program.poisoned):
        assert_same(list(compiled.run(examples)), list(full))
    results = compiled.run(program.examples, losses=True)
    assert_same(list(results), list(full))
    assert_same(np.array(results.loss), np.array(full.loss))
    assert_same(np.array(list(results.losses.values())), np.array(list(full.losses.values())))
    assert results.losses.keys() == full.losses.keys()
    results = compiled.run(program.examples, metrics=True)
    assert_same(list(results), list(full))
    found, right = metrics_of(results), metrics_of(full)
    assert list(found) == list(right)
    for name, metric in right.items():
        assert_same(found[name], metric)


@settings(many, max_examples=4)
@given(programs())
def test_a_step_is_a_run_and_its_gradients(program):
    compiled = fb.compile(program.block, TESTED)
    made = compiled.step(program.examples, step=3)
    loss, gradients = compiled.value_and_grad(program.examples, step=3)
    assert made.loss == loss
    assert list(gradients) == list(made.gradients)
    for name, right in gradients_of(compiled, program.examples, step=3)[1].items():
        assert np.array_equal(dense(made.gradients[name]), right, equal_nan=True)
    results = compiled.run(program.examples, losses=True, metrics=True)
    assert_same(list(made.results), list(results))
    assert_same(
        [np.array(made.losses[name]) for name in results.losses],
        [np.array(x) for x in results.losses.values()],
    )
    for name, metric in metrics_of(results).items():
        assert_same(metrics_of(made.results)[name], metric)


def test_a_prediction_needs_no_labels():
    program = fb.compile(model(), TESTED)
    labelled, predicted = program.run(DATA, losses=True, metrics=True), program.run(UNLABELLED)
    np.testing.assert_allclose(np.array(predicted), np.array(labelled))
    with pytest.raises(ExampleKeyError, match="'y'"):
        program.run(UNLABELLED, losses=True)
    program.params["layer.bias"] += 1  # the same parameters
    np.testing.assert_allclose(np.array(program.run(UNLABELLED)), np.array(labelled) + 1)


def test_losses_are_found_by_name():
    program = fb.compile(model(), TESTED)
    program.params["layer.weight"], program.params["layer.bias"] = [[1], [0]], [0]
    results = program.run(DATA[:3], losses=True)
    assert (results.loss, results.losses) == (10.0, {"error": 5.0, "size": 5.0})
    assert program.run([], losses=True).losses == {"error": 0.0, "size": 0.0}
    assert list(program.run([], metrics=True).metrics) == ["seen"]


@pytest.mark.parametrize("batch", [DATA, []])
def test_what_was_not_asked_for_says_so(batch):
    program = fb.compile(model(), TESTED)
    planned = program.plan(batch)
    for work in (batch, planned, program.prepare(batch)):
        results = program.run(work)
        for name, option in (("metrics", "metrics"), ("loss", "losses"), ("losses", "losses")):
            expected = (
                rf"results.{name}: expected run\(..., {option}=True\), found a run without {option}; ask"
            )
            with pytest.raises(NotAskedError, match=expected):
                getattr(results, name)
        assert program.run(work, losses=True).loss >= 0
        with pytest.raises(NotAskedError):
            _ = program.run(work, losses=True).metrics
        assert results == list(results)
        assert repr(results) == repr(list(results))


def test_a_step_drops_as_value_and_grad_does():
    dropped = (
        fb.Vector(64) >> fb.Dropout(0.5) >> fb.AllOf(fb.Identity(), fb.Function(fb.ops.sum) >> fb.Loss())
    )
    program = fb.compile(dropped >> fb.GetItem(0), TESTED)
    made = program.step([[1] * 64], step=5)
    assert set(made.results[0].tolist()) == {0.0, 2.0}
    assert made.loss == program.value_and_grad([[1] * 64], step=5)[0] == made.results[0].sum()
    assert program.run([[1] * 64])[0].tolist() == [1] * 64
    assert program.step([[1] * 64]).loss != program.step([[1] * 64]).loss


def test_what_is_asked_for_is_said_by_true_or_false():
    program = fb.compile(fb.Scalar() >> fb.Loss("cls"))
    with pytest.raises(fb.errors.BlockTypeError, match="run losses: expected True or False, found str 'cls'"):
        program.run([1], losses="cls")
