"""Our model in the benchmark is the peers' model, whichever way its trees come."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.ours import Ours, OursOfFlat
from benchmarks.peers import parameter_shapes
from benchmarks.workload import random_trees
from foldbatch.trees import Vocabulary
from tests.benchmarks.flat_trees import batch_loss, node_logits

TREES = random_trees(5, seed=4)
VOCABULARY = Vocabulary.count(word for tree in TREES for word in tree.words())


@pytest.fixture(scope="module")
def ours() -> Ours:
    return Ours(4, VOCABULARY, "numpy")


def test_loss_and_scores_are_those_of_plain_recursion(ours) -> None:
    parameters, flat = ours.parameters(), [ours.flat(tree) for tree in TREES]
    assert {name: a.shape for name, a in parameters.items()} == parameter_shapes(4, len(VOCABULARY))
    assert ours.loss(TREES) == pytest.approx(batch_loss(flat, parameters, 4), rel=1e-5)
    expected = [node_logits(tree, parameters, 4)[-1] for tree in flat]
    np.testing.assert_allclose(ours.infer(TREES), expected, atol=1e-5)


def test_of_flat_trees_it_is_the_same_model() -> None:
    """And it trains."""
    ours = Ours(4, VOCABULARY, "numpy")
    flat = [ours.flat(tree) for tree in TREES]
    other = OursOfFlat(4, ours.parameters())
    assert other.loss(flat) == pytest.approx(ours.loss(TREES), rel=1e-6)
    np.testing.assert_allclose(other.infer(flat), ours.infer(TREES), atol=1e-6)
    before = ours.loss(TREES)
    assert ours.step(TREES) == pytest.approx(before, rel=1e-6)
    assert other.step(flat) == pytest.approx(before, rel=1e-6)
    assert ours.loss(TREES) < before
    assert other.loss(flat) == pytest.approx(ours.loss(TREES), rel=1e-5)
