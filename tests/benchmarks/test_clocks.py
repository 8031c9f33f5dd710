"""Clocks see every product and elementwise statement of a kernel and change nothing that it computes."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from benchmarks.clocks import ELEMENTWISE, GEMM, KINDS, OTHER, kind_of, timed
from benchmarks.workload import random_trees, tree_lstm
from foldbatch.static.op import CALL
from foldbatch.static.statements import Statement
from foldbatch.trees import Vocabulary

ARRAY_ENGINES = ["numpy", pytest.param("numba", marks=pytest.mark.numba)]


def _program(trees, engine: str, hidden: int = 8) -> fb.Program:
    if engine == "numba":
        pytest.importorskip("numba")
    vocabulary = Vocabulary.count(word for tree in trees for word in tree.words())
    return fb.compile(tree_lstm(hidden, vocabulary), engine, threads=1)


def test_statements_have_kinds() -> None:
    """A gradient of a weight is a product, too; what moves or sums elements is no elementwise work."""
    for op, kind in {
        **dict.fromkeys(("linear", "matmul", "sum_outer"), GEMM),
        **dict.fromkeys(("loop", "add", "tanh", "cast", "where"), ELEMENTWISE),
        **dict.fromkeys(("copy", "check_range", "sum", "sum_batch", "gather", "concat", "softmax"), OTHER),
    }.items():
        assert kind_of(Statement(op, CALL)) == kind, op


@pytest.mark.parametrize("engine", ARRAY_ENGINES)
def test_every_kind_takes_time(engine) -> None:
    trees = random_trees(5)
    program, spent = _program(trees, engine), dict.fromkeys(KINDS, 0.0)
    clocked = timed(program, spent)
    assert not any(spent.values())
    clocked.value_and_grad(trees)
    assert all(seconds > 0 for seconds in spent.values())


@pytest.mark.parametrize("engine", ARRAY_ENGINES)
def test_products_are_timed_where_they_are(engine, monkeypatch) -> None:
    """By a clock that tells how often it is stopped: once for each product of each level."""
    stops = dict.fromkeys(KINDS, 0)

    def lap(clock, kind: str) -> None:
        stops[kind] += 1

    monkeypatch.setattr("benchmarks.clocks.Clock.lap", lap)
    trees = random_trees(5)
    program = _program(trees, engine)
    clocked = timed(program, dict.fromkeys(KINDS, 0.0))
    clocked.value_and_grad(trees)
    batch = program.schedule(trees)
    ready = program._runner.engine.ready(batch, training=True)
    expected = dict.fromkeys(KINDS, 0)
    for table in (ready.tables.forward, ready.tables.backward):
        for kernel, first, stop in table.launches[:, :3].tolist():
            for statement in ready.kernels.bound.routines[kernel].statements:
                expected[kind_of(statement)] += stop - first
    assert (stops[GEMM], stops[ELEMENTWISE]) == (expected[GEMM], expected[ELEMENTWISE])
    assert (
        stops[OTHER] == stops[GEMM] + stops[ELEMENTWISE] + 2
    )  # before each, and at the end of each direction


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
            g.dense() if isinstance(g, fb.SparseRows) else g for g in (gradient, timed_gradients[name])
        )
        np.testing.assert_array_equal(ours, theirs)
    before = dict(spent)  # nor does one that is compiled later have clocks
    fb.compile(program.lowered.block, engine, threads=1).value_and_grad(trees)
    program.value_and_grad(trees)
    assert spent == before
