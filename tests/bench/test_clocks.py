"""Clocks see every statement of a kernel and change nothing that it computes."""

from __future__ import annotations

import ast
import time

import numpy as np

import foldbatch as fb
from foldbatch.bench.clocks import (
    ELEMENTWISE,
    GEMM,
    KINDS,
    OTHER,
    array_calls,
    array_calls_of,
    kind_of,
    timed,
)
from foldbatch.bench.workload import random_trees, tree_lstm
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


def test_views_are_no_array_calls() -> None:
    """What fills an array is, however it is written."""
    counts = {
        "v0 = x0.reshape((n, 300))": 0,
        "v0 = p0.transpose(1, 0)": 0,
        "v0 = s0[:, 0:3]": 0,
        "s0[...] = 0": 1,
        "top = k0.max(-1, keepdims=True)": 1,
        "np.divide(s1, s1.sum(1, keepdims=True), out=s1)": 2,
    }
    assert {text: array_calls(_statement(text)) for text in counts} == counts


def test_a_kernels_array_calls_are_those_of_its_statements() -> None:
    """The classifier of the roots is a product and a sum."""
    program = _program(random_trees(2))
    assert array_calls_of(program.model.cells[-1].inference["before"]) == 2


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


def test_kernels_of_both_directions_have_clocks() -> None:
    """Those of inference have none."""
    program = _program(random_trees(2))
    for cell, clocked in zip(
        program.model.cells, timed(program, dict.fromkeys(KINDS, 0.0)).model.cells, strict=True
    ):
        for side, changed in (("forward", True), ("backward", True), ("inference", False)):
            mine, theirs = getattr(cell, side), getattr(clocked, side)
            assert mine.keys() == theirs.keys()
            assert all((mine[stage].function is not theirs[stage].function) is changed for stage in mine)


def test_clocks_add_up_to_less_than_the_whole() -> None:
    """Every kind takes some of it; the rest is the executor's."""
    trees = random_trees(8)
    program, spent = _program(trees, hidden=64), dict.fromkeys(KINDS, 0.0)
    clocked = timed(program, spent)
    start = time.thread_time()
    clocked.value_and_grad(trees)
    assert 0 < sum(spent.values()) < time.thread_time() - start
    assert all(seconds > 0 for seconds in spent.values())
