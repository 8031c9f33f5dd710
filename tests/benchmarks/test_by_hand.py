"""The hand-written backward pass gives what automatic differentiation gives."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.by_hand import TorchByHand
from benchmarks.peers import TorchByLevel
from tests.benchmarks.flat_trees import batch_loss, node_logits, random_parameters, random_trees

HIDDEN, WORDS = 3, 9
BATCHES = [[5, 1, 2, 9, 7], [1], [1, 1, 1], [6], [2, 2]]


def model(parameters, **options):
    pytest.importorskip("torch")
    return TorchByHand(HIDDEN, WORDS, parameters, **options)


@pytest.mark.parametrize("sizes", BATCHES, ids=str)
def test_loss_and_root_logits_are_those_of_plain_recursion(sizes):
    trees, parameters = random_trees(0, sizes), random_parameters(1, HIDDEN, WORDS)
    by_hand = model(parameters)
    assert by_hand.loss(trees) == pytest.approx(batch_loss(trees, parameters, HIDDEN), rel=1e-12)
    roots = [node_logits(tree, parameters, HIDDEN)[-1] for tree in trees]
    np.testing.assert_allclose(by_hand.infer(trees), roots, rtol=1e-10)


@pytest.mark.parametrize(
    ("dtype", "onednn", "tolerance"), [("float64", False, 1e-11), ("float32", True, 1e-4)]
)
@pytest.mark.parametrize("sizes", BATCHES, ids=str)
def test_gradients_are_those_of_automatic_differentiation(sizes, dtype, onednn, tolerance):
    trees, parameters = random_trees(0, sizes), random_parameters(1, HIDDEN, WORDS, dtype)
    ours = model(parameters, onednn=onednn).gradients(trees)
    theirs = TorchByLevel(HIDDEN, WORDS, parameters).gradients(trees)
    for name, gradient in theirs.items():
        np.testing.assert_allclose(ours[name], gradient, rtol=tolerance, atol=tolerance, err_msg=name)
