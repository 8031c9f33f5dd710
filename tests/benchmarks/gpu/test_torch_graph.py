"""The program that is captured as a CUDA graph computes the model; here it runs without being captured."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gpu.torch_graph import TorchCaptured
from benchmarks.peers import TorchByLevel
from tests.benchmarks.flat_trees import batch_loss, node_logits, random_parameters, random_trees

HIDDEN, WORDS = 3, 9


@pytest.fixture(scope="module")
def batches():
    return [random_trees(0, [5, 2, 9]), random_trees(1, [1, 1, 1]), random_trees(2, [30, 1, 4])]


def captured(batches, parameters):
    pytest.importorskip("torch")
    return TorchCaptured(HIDDEN, WORDS, parameters, batches)


def test_loss_and_scores_are_those_of_plain_recursion_whatever_ran_before(batches):
    parameters = random_parameters(1, HIDDEN, WORDS)
    model = captured(batches, parameters)
    for trees in [*batches, *batches]:
        assert model.loss(trees) == pytest.approx(batch_loss(trees, parameters, HIDDEN), rel=1e-12)
        roots = [node_logits(tree, parameters, HIDDEN)[-1] for tree in trees]
        np.testing.assert_allclose(model.infer(trees), roots, rtol=1e-10)


def test_it_learns_as_the_program_by_level_does(batches):
    parameters = random_parameters(1, HIDDEN, WORDS)
    model, other = captured(batches, parameters), TorchByLevel(HIDDEN, WORDS, parameters)
    trained = [batches[0], batches[2]]  # of leaves alone PyTorch moves no weights of inner nodes
    for trees in [*trained, *trained]:
        assert model.step(trees) == pytest.approx(other.step(trees), rel=1e-9)
    for name, weight in model.parameters.items():
        np.testing.assert_allclose(weight.detach(), other.parameters[name].detach(), rtol=1e-7, err_msg=name)
    np.testing.assert_allclose(model.embedding[:WORDS], other.embedding, rtol=1e-7)
    assert not model.embedding[WORDS:].any()  # the word of rows to spare


def test_a_batch_may_be_planned_before(batches):
    parameters = random_parameters(1, HIDDEN, WORDS)
    model, other = captured(batches, parameters), captured(batches, parameters)
    plans = [other.planned(trees) for trees in batches]
    for trees, plan in zip(batches, plans, strict=True):
        assert model.step(trees) == other.step(plan)
        np.testing.assert_array_equal(model.infer(trees), other.infer(plan))
