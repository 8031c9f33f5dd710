"""The case ``functions`` runs, and its two models are one."""

from __future__ import annotations

import numpy as np

import foldbatch as fb
from benchmarks import functions
from benchmarks.workload import random_trees, tree_lstm
from tests.backends import TESTED


def test_the_function_computes_what_the_block_does() -> None:
    trees = random_trees(4, words=9)
    words = functions.words_of(trees)
    programs = [fb.compile(model, TESTED) for model in (tree_lstm(4, words), functions.walk_of(4, words))]
    programs[1].warm(trees)
    for name, value in programs[0].params.items():
        programs[1].params[name] = value
    (loss, gradients), (found, same) = (program.value_and_grad(trees) for program in programs)
    assert found == loss
    for name, gradient in gradients.items():
        a, b = (g.dense() if isinstance(g, fb.params.SparseRows) else g for g in (gradient, same[name]))
        np.testing.assert_array_equal(a, b)
    results = [program.describe(trees) for program in programs]
    assert results[0].calls_forward == results[1].calls_forward
    assert results[0].calls_backward == results[1].calls_backward
