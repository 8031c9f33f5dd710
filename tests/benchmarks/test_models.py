"""Models written with blocks make the structures' calls, and every policy computes the same."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from benchmarks import models
from benchmarks.structures import (
    LATTICE,
    OUTPUTS,
    ROOT,
    TAGGER,
    TREE_OVER_TAGGER,
    count,
    random_lattices,
    rare_words,
    structures,
)
from benchmarks.workload import random_trees
from foldbatch.scheduler.policies import POLICIES

TREES = random_trees(12, seed=4)
LATTICES = random_lattices(TREES)


def test_compiled_models_need_as_many_groups_as_structures_written_by_hand() -> None:
    """Tree-LSTMs exactly; elsewhere a cell more for a chain's zeros or less for a word's vector, once a batch."""
    by_hand = structures(TREES, LATTICES)
    compiled = models.models(TREES, LATTICES)
    assert list(compiled) == list(by_hand)
    for name in (ROOT, OUTPUTS, TAGGER, TREE_OVER_TAGGER, LATTICE):
        expected, found = count(by_hand[name]), count(compiled[name])
        tolerance = 0 if name in (ROOT, OUTPUTS) else 3
        assert abs(found.groups["by_component"] - expected.groups["by_component"]) <= tolerance
        assert abs(found.bound - expected.bound) <= tolerance


def _dense(gradient: fb.params.SparseRows | np.ndarray) -> np.ndarray:
    return gradient.dense() if isinstance(gradient, fb.params.SparseRows) else gradient


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "by_component"])
@pytest.mark.parametrize("model", ["tree", "tagger", "shift_reduce", "lattice"])
def test_every_policy_computes_the_same_loss_and_gradients(model: str, policy: str) -> None:
    """As one example at a time does."""
    trees = TREES[:4]
    rare = rare_words(trees)
    block, examples = {
        "tree": (models.tree_over_tagger(), [models.sentence(tree) for tree in trees]),
        "tagger": (models.tagger(), [models.sentence(tree, rare) for tree in trees]),
        "shift_reduce": (models.shift_reduce(), [models.sentence(tree) for tree in trees]),
        "lattice": (models.lattice(), [row[:12] for row in LATTICES[:4]]),
    }[model]
    loss, gradients = fb.compile(block, options={"batched": False}).value_and_grad(examples)
    assert loss > 0
    assert all(_dense(gradient).any() for gradient in gradients.values())
    for name in (policy, "by_component"):
        found, others = fb.compile(block, options={"policy": name}, threads=1, debug=True).value_and_grad(
            examples
        )
        assert np.isclose(found, loss, rtol=1e-4)
        for key, gradient in gradients.items():
            assert np.allclose(_dense(others[key]), _dense(gradient), rtol=1e-3, atol=1e-4)
