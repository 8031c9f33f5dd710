"""What the compiler saves is counted as the program runs, and compilers that lack something compute the same."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest

import foldbatch as fb
from benchmarks.compiler import VARIANTS
from benchmarks.workload import random_trees, tree_lstm
from foldbatch.trees import Vocabulary
from tests.knobs import knobs

TREES = random_trees(6, seed=3)
BLOCK = tree_lstm(8, Vocabulary.count(word for tree in TREES for word in tree.words()))


def _program(variant: str = "as compiled", **options) -> fb.Program:
    policy, contexts = VARIANTS[variant]
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context())
        return fb.compile(BLOCK, "numpy", threads=1, **knobs({"policy": policy, **options}))


def _dense(gradients) -> dict[str, np.ndarray]:
    return {name: g.dense() if isinstance(g, fb.params.SparseRows) else g for name, g in gradients.items()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_computes_the_same(variant) -> None:
    """Up to rounding."""
    loss, gradients = _program().value_and_grad(TREES)
    other_loss, other_gradients = _program(variant).value_and_grad(TREES)
    np.testing.assert_allclose(other_loss, loss, rtol=1e-6)
    expected, found = _dense(gradients), _dense(other_gradients)
    assert expected.keys() == found.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5)
