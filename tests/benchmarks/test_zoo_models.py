"""The models of the zoo learn, and batched they compute what one at a time by the oracle does."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from benchmarks.workload import random_trees
from benchmarks.zoo_models import MODELS
from foldbatch.trees import Tree, Vocabulary

TREES = [*random_trees(3, seed=1), Tree.leaf(2, "w7"), Tree.from_nested((0, (3, "w1"), (1, "w2")))]
VOCABULARY = Vocabulary.count(word for tree in TREES[1:] for word in tree.words())
SIZE = 3


def _dense(gradient: fb.params.SparseRows | np.ndarray) -> np.ndarray:
    return gradient.dense() if isinstance(gradient, fb.params.SparseRows) else gradient


@pytest.mark.parametrize("name", MODELS)
def test_batched_is_one_at_a_time(name):
    """Loss, scores and gradients, on trees that one node makes up, too; every parameter gets a gradient."""
    model = MODELS[name]
    block = model.block(SIZE, VOCABULARY)
    trees = [model.example(tree) for tree in TREES]
    oracle = fb.compile(block, "reference")
    loss, gradients = oracle.value_and_grad(trees)
    program = fb.compile(block, threads=2, debug=True)
    found, others = program.value_and_grad(trees)
    assert found == pytest.approx(loss, rel=1e-4)
    assert others.keys() == gradients.keys()
    for key, gradient in gradients.items():
        assert np.abs(_dense(gradient)).max() > 0, key
        np.testing.assert_allclose(_dense(others[key]), _dense(gradient), rtol=1e-3, atol=1e-4, err_msg=key)
    for scores, expected in zip(program.run(trees), oracle.run(trees), strict=True):
        np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-5)
