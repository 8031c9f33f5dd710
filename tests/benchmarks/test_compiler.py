"""What the compiler saves is counted as the program runs, and compilers that lack something compute the same."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest

import foldbatch as fb
from benchmarks import compiler
from benchmarks.clocks import KINDS
from benchmarks.compiler import EXECUTOR, UPDATE, VARIANTS, count, memory
from benchmarks.workload import random_trees, tree_lstm
from foldbatch.trees import Vocabulary

TREES = random_trees(6, seed=3)
BLOCK = tree_lstm(8, Vocabulary.count(word for tree in TREES for word in tree.words()))


def _program(variant: str = "as compiled", **options) -> fb.Program:
    policy, contexts = VARIANTS[variant]
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context())
        return fb.compile(BLOCK, "numpy", policy, threads=1, **options)


def _dense(gradients) -> dict[str, np.ndarray]:
    return {name: g.dense() if isinstance(g, fb.SparseRows) else g for name, g in gradients.items()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_calls_as_many_kernels_as_counted(variant) -> None:
    """By the count of the engine that ran them."""
    program = _program(variant)
    report = program.describe(TREES)
    assert count(program, TREES).kernels == (report.calls_forward, report.calls_backward)


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


def test_stages_and_passes_save_statements() -> None:
    """Stages a gradient per level, passes ops of the backward graphs, policy a classifier per level."""
    found = {variant: count(_program(variant), TREES) for variant in VARIANTS}
    levels = found["as compiled"].levels
    assert levels == max(tree.height for tree in TREES)
    assert found["no stages"].statements[1] == found["as compiled"].statements[1] + 2 * (levels - 1)
    assert sum(found["no passes"].statements) > sum(found["as compiled"].statements)
    assert found["no stages, by depth"].kernels[0] > found["no stages"].kernels[0] + levels / 2
    assert sum(found["neither, by depth"].statements) > max(
        sum(f.statements) for name, f in found.items() if name != "neither, by depth"
    )


@pytest.mark.numba
def test_a_fused_loop_is_one_statement() -> None:
    """So Numba's kernels have fewer, of as many calls."""
    pytest.importorskip("numba")
    numba = count(fb.compile(BLOCK, "numba", threads=1), TREES)
    numpy = count(_program(), TREES)
    assert numba.kernels == numpy.kernels
    assert all(few < many / 2 for few, many in zip(numba.statements, numpy.statements, strict=True))


def test_planned_bytes_are_those_explained() -> None:
    """For training: a row per distinct call, and what is there once."""
    program = _program()
    found = memory(program, TREES)
    rows = [len(table.order) for table in program.schedule(TREES).schedule.cells]
    for name in ("planned", "unplanned"):
        each = [getattr(cell, name) for cell in fb.explain(program).cells]
        expected = sum(sizes.get("N", 0) * n + sizes.get("1", 0) for sizes, n in zip(each, rows, strict=True))
        assert getattr(found, name) == expected


def test_outcome_has_every_figure() -> None:
    """For each backend that is installed; only the first is compiled in all variants."""
    outcome = compiler.run(TREES, hidden=8, repeats=1)
    assert outcome.steps.keys() == outcome.undisturbed.keys()
    first, *others = outcome.steps
    assert list(outcome.counts) == [f"{first}, {v}" for v in VARIANTS] + [
        f"{name}, as compiled" for name in others
    ]
    assert len(outcome.memory) == 2 * len(outcome.steps)
    for spent in outcome.steps.values():
        assert list(spent) == [*KINDS, EXECUTOR, UPDATE]
        assert min(spent.values()) > 0
    assert " to " in outcome.load
