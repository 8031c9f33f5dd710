"""The oracle is right: against finite differences, with nothing else between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops


def _model() -> tuple[fb.Program, list[Any]]:
    """Return a program with a table, a recursion over any number of children, losses and a frozen weight."""
    tree = fb.ForwardDeclaration(output_type=[3, "float64"], name="tree")
    embed = fb.Embedding(5, 3, dtype="float64")
    scale = fb.Parameter([3, "float64"], [0.5, 1.5, -1.0], "scale", trainable=False)
    join = fb.Linear(3)
    combine = fb.Function(lambda x, kids: ops.tanh(join(ops.concat([x, ops.segment_sum(kids * scale)]))))
    here = fb.GetItem(0) >> fb.Scalar("int32") >> embed
    below = fb.GetItem(1) >> fb.Map(tree())
    node = fb.AllOf(here, below) >> combine
    loss = fb.Function(lambda h: ops.sum(ops.square(h))) >> fb.Loss()
    tree.resolve_to(node >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0))
    examples = [(1, []), (0, [(4, []), (1, [(2, []), (2, [])]), (3, [])])]
    return fb.compile(tree(), backend="reference"), examples


def test_gradients_are_what_finite_differences_say() -> None:
    """For every trainable parameter, in float64; frozen ones have none."""
    program, examples = _model()
    loss, gradients = program.value_and_grad(examples)
    assert loss == pytest.approx(program.run(examples, losses=True).loss, rel=1e-14)
    assert set(gradients) == {"embedding.weight", "linear.weight", "linear.bias"}
    rng = np.random.default_rng(0)
    for name, gradient in gradients.items():
        value = program.params[name]
        kept, direction, step = value.copy(), rng.normal(size=value.shape), 1e-6
        ends = []
        for sign in (1, -1):
            program.params[name] = kept + sign * step * direction
            ends.append(program.run(examples, losses=True).loss)
        program.params[name] = kept
        dense = gradient.dense() if isinstance(gradient, fb.params.SparseRows) else gradient
        assert np.vdot(dense, direction) == pytest.approx(
            (ends[0] - ends[1]) / (2 * step), rel=1e-7, abs=1e-9
        )


def test_examples_are_evaluated_one_by_one() -> None:
    """The oracle of a batch is the sum of those of its examples."""
    program, examples = _model()
    whole, parts = program.value_and_grad(examples), [program.value_and_grad([x]) for x in examples]
    assert whole[0] == pytest.approx(sum(loss for loss, _ in parts), rel=1e-15)
    for name in ("linear.weight", "linear.bias"):
        np.testing.assert_allclose(whole[1][name], sum(np.asarray(g[name]) for _, g in parts), rtol=1e-14)


def test_it_computes_in_float64_whatever_the_model() -> None:
    """A float32 model's parameters are read as they are; all else is exact to 16 digits."""
    program = fb.compile(fb.Vector(2) >> fb.Function(lambda x: x / 3), backend="reference")
    assert program.run([[1, 2]])[0].dtype == np.float64
    assert program.run([[1, 2]])[0].tolist() == [1 / 3, 2 / 3]
