"""Clocks see every product and elementwise statement of a kernel and change nothing that it computes."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from benchmarks.clocks import KINDS, timed
from benchmarks.workload import random_trees, tree_lstm
from foldbatch.trees import Vocabulary

ARRAY_ENGINES = ["numpy", pytest.param("llvm", marks=pytest.mark.llvm)]


def _program(trees, engine: str, hidden: int = 8) -> fb.Program:
    if engine == "llvm":
        pytest.importorskip("llvmlite")
    vocabulary = Vocabulary.count(word for tree in trees for word in tree.words())
    return fb.compile(tree_lstm(hidden, vocabulary), engine, threads=1)


@pytest.mark.parametrize("engine", ARRAY_ENGINES)
def test_clocks_change_no_bit(engine) -> None:
    """Of loss and gradients; the program itself stays as it was."""
    trees = random_trees(5)
    program, spent = _program(trees, engine), dict.fromkeys(KINDS, 0.0)
    loss, gradients = program.value_and_grad(trees)
    assert not any(spent.values())
    timed_loss, timed_gradients = timed(program, spent).value_and_grad(trees)
    assert timed_loss == loss
    assert gradients.keys() == timed_gradients.keys()
    for name, gradient in gradients.items():
        ours, theirs = (
            g.dense() if isinstance(g, fb.params.SparseRows) else g for g in (gradient, timed_gradients[name])
        )
        np.testing.assert_array_equal(ours, theirs)
    before = dict(spent)  # nor does one that is compiled later have clocks
    fb.compile(program.lowered.block, engine, threads=1).value_and_grad(trees)
    program.value_and_grad(trees)
    assert spent == before
