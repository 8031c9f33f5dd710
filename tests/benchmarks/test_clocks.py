"""Clocks see every statement of a kernel and change nothing that it computes."""

from __future__ import annotations

import ast

import numpy as np

import foldbatch as fb
from benchmarks.clocks import (
    ELEMENTWISE,
    GEMM,
    KINDS,
    OTHER,
    array_calls_of,
    kind_of,
    timed,
)
from benchmarks.workload import random_trees, tree_lstm
from foldbatch.trees import Vocabulary


def _statement(text: str) -> ast.stmt:
    (statement,) = ast.parse(text).body
    return statement


def _program(trees, hidden: int = 8) -> fb.Program:
    vocabulary = Vocabulary.count(word for tree in trees for word in tree.words())
    return fb.compile(tree_lstm(hidden, vocabulary), "numpy", threads=1)


def test_statements_have_kinds() -> None:
    """A reduction in passing makes a statement no elementwise one."""
    assert kind_of(_statement("np.matmul(v0.T, k0, out=s1)")) == GEMM
    assert kind_of(_statement("product_f4(v0.T, k0, s1)")) == GEMM
    assert kind_of(_statement("np.add(s0, p1, out=s0)")) == ELEMENTWISE
    assert kind_of(_statement("loop_18b830f0(n, s0, p2)")) == ELEMENTWISE
    for text in (
        "np.add(s1, top.max(-1), out=s1)",
        "np.subtract(c0 - s1, k0, out=s1)",
        "np.take(p0, f0, axis=0, out=k0, mode='clip')",
        "s0[...] = 0",
        "v0 = s0[:, 0:3]",
        "rows5 = sum_rows(s3, f0, 60)",
    ):
        assert kind_of(_statement(text)) == OTHER, text


def test_a_kernels_array_calls_are_those_of_its_statements() -> None:
    """The classifier of the roots is a product and a sum."""
    program = _program(random_trees(2))
    assert array_calls_of(program.lowered.cells[-1].inference["before"]) == 2


def test_clocks_change_no_bit() -> None:
    """Of loss and gradients; the program itself stays as it was."""
    trees = random_trees(5)
    program, spent = _program(trees), dict.fromkeys(KINDS, 0.0)
    loss, gradients = program.value_and_grad(trees)
    assert not any(spent.values())
    timed_loss, timed_gradients = timed(program, spent).value_and_grad(trees)
    assert timed_loss == loss
    assert gradients.keys() == timed_gradients.keys()
    for name, gradient in gradients.items():
        ours, theirs = (
            g.dense() if isinstance(g, fb.SparseRows) else g for g in (gradient, timed_gradients[name])
        )
        np.testing.assert_array_equal(ours, theirs)
    before = dict(spent)
    program.value_and_grad(trees)
    assert spent == before
