"""Batches of examples that a device holds, against the same batches planned by the host."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import BackendError
from tests.engines.cuda.checked import in_every_order

pytestmark = pytest.mark.skipif(
    os.environ.get("FOLDBATCH_BACKEND") != "cuda-on-cpu", reason="runs with FOLDBATCH_BACKEND=cuda-on-cpu"
)
NESTED = st.recursive(st.integers(0, 8), lambda inner: st.tuples(inner, inner), max_leaves=9)


def _trees():
    """Binary trees of numbers; every inner node has a loss, and two recursions take turns."""
    even, odd = (fb.ForwardDeclaration(output_type=[5], name=name) for name in ("even", "odd"))
    leaf = fb.Scalar("int32") >> fb.Embedding(9, 5)

    def level(other, name):
        join = (
            fb.Record((other(), other())) >> fb.Concat() >> fb.Linear(5, name=name) >> fb.Function(ops.tanh)
        )
        scored = (
            join
            >> fb.AllOf(fb.Identity(), fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss())
            >> fb.GetItem(0)
        )
        return fb.OneOf(lambda t: isinstance(t, tuple), {True: scored, False: leaf})

    even.resolve_to(level(odd, "a"))
    odd.resolve_to(level(even, "b"))
    return even() >> fb.AllOf(fb.Function(ops.sum), fb.Function(ops.sum) >> fb.Loss()) >> fb.GetItem(0)


def _dense(gradient):
    return gradient.dense() if isinstance(gradient, fb.SparseRows) else np.asarray(gradient)


@pytest.fixture(scope="module")
def program():
    return fb.compile(_trees(), "cuda-on-cpu", engine="persistent", seed=1)


@settings(max_examples=15)
@given(st.lists(NESTED, min_size=1, max_size=7), st.data())
def test_losses_and_gradients_are_those_of_the_host(program, trees, data):
    held = program.hold(trees)
    for _ in range(2):
        numbers = data.draw(st.lists(st.integers(0, len(trees) - 1), min_size=1, max_size=6))
        found, gradients = program.value_and_grad(held[numbers])
        loss, wanted = program.value_and_grad([trees[number] for number in numbers])
        assert float(found) == pytest.approx(float(loss), rel=1e-5)
        for name, gradient in wanted.items():
            np.testing.assert_allclose(_dense(gradients[name]), _dense(gradient), rtol=1e-4, atol=1e-5)


def test_held_examples_are_trained_in_every_order_of_the_device():
    trees = [((1, 2), 3), 4, (5, (6, (7, 8))), ((1, 1), (2, 2))]

    def train():
        program = fb.compile(_trees(), "cuda-on-cpu", engine="captured", seed=1)
        held, optimizer, losses = program.hold(trees), fb.AdaGrad(lr=0.1), []
        for numbers in ([0, 2], [3, 3, 1], range(4), np.array([2])):
            loss, gradients = program.value_and_grad(held[numbers])
            optimizer.update(program.params, gradients)
            losses.append(loss)
        return [float(loss) for loss in losses], {k: np.array(v) for k, v in program.params.items()}

    in_every_order(train)


def test_what_cannot_be_held_is_refused():
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 3)) >> fb.Sum() >> fb.Function(ops.sum) >> fb.Loss()
    with pytest.raises(BackendError, match="hold: expected cells that read a fixed number of values"):
        fb.compile(words, "cuda-on-cpu").hold([[1, 2], [3]])


def test_results_of_a_held_batch_are_planned_by_the_host_or_refused(program):
    trees = [((1, 2), 3), 4]
    held = program.hold(trees)
    assert [float(x) for x in program.run(held[[1, 0]])] == [float(x) for x in program.run(trees[::-1])]
    with pytest.raises(BackendError, match="hold: expected a batch of held examples"):
        program.step(held[[0]])
    assert float(program.value_and_grad(held[[0]])[0]) == pytest.approx(
        float(program.value_and_grad(trees[:1])[0])
    )
