"""The peers compute the benchmark's model: against recursion in NumPy, and against each other."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.peers import TorchByLevel, TorchPerNode
from tests.benchmarks.flat_trees import batch_loss, node_logits, random_parameters, random_trees

HIDDEN, WORDS = 3, 9
BATCHES = {
    "mixed": [5, 1, 2, 9, 7],
    "a single leaf": [1],
    "leaves only": [1, 1, 1],
    "one tree": [6],
    "equal trees": [2, 2],
}


@pytest.fixture(params=[TorchByLevel, TorchPerNode])
def peer(request):
    pytest.importorskip("torch")
    return request.param


every_batch = pytest.mark.parametrize("sizes", BATCHES.values(), ids=BATCHES)


@every_batch
def test_loss_and_root_logits_are_those_of_plain_recursion(peer, sizes):
    trees, parameters = random_trees(0, sizes), random_parameters(1, HIDDEN, WORDS)
    model = peer(HIDDEN, WORDS, parameters)
    assert model.loss(trees) == pytest.approx(batch_loss(trees, parameters, HIDDEN), rel=1e-12)
    roots = [node_logits(tree, parameters, HIDDEN)[-1] for tree in trees]
    np.testing.assert_allclose(model.infer(trees), roots, rtol=1e-10)


@every_batch
def test_gradients_are_finite_differences_of_plain_recursion(peer, sizes):
    trees, parameters = random_trees(0, sizes), random_parameters(1, HIDDEN, WORDS)
    gradients = peer(HIDDEN, WORDS, parameters).gradients(trees)
    assert gradients.keys() == parameters.keys()
    rng = np.random.default_rng(2)
    for name, value in parameters.items():
        direction = rng.normal(size=value.shape)
        ahead, behind = (
            batch_loss(trees, parameters | {name: value + sign * 1e-5 * direction}, HIDDEN)
            for sign in (1, -1)
        )
        slope = float((gradients[name] * direction).sum())
        assert slope == pytest.approx((ahead - behind) / 2e-5, rel=1e-6, abs=1e-8), name


def test_a_step_is_adam_and_moves_only_the_rows_of_words_that_occur(peer):
    trees, parameters = random_trees(0, [3]), random_parameters(1, HIDDEN, WORDS)
    model = peer(HIDDEN, WORDS, parameters)
    gradients = model.gradients(trees)
    loss = model.loss(trees)
    assert model.step(trees) == pytest.approx(loss)
    moved = {name: tensor.detach().numpy() - parameters[name] for name, tensor in model.parameters.items()}
    moved["embedding"] = model.embedding.numpy() - parameters["embedding"]
    for name, g in gradients.items():  # Adam's first step is the learning rate against the sign
        np.testing.assert_allclose(moved[name], -1e-3 * g / (np.abs(g) + 1e-8), atol=1e-12, err_msg=name)
    words = np.unique(trees[0].words)
    assert set(np.flatnonzero(moved["embedding"].any(1))) == set(words[words >= 0])
