"""The program that is captured as a CUDA graph computes the model; here it runs without being captured."""

import numpy as np
import pytest

from benchmarks.gpu.torch_graph import TorchCaptured
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
