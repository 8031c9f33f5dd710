"""All levels in one call give the same bits as one level after the other, wherever rows lie."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.executor import Execution
from foldbatch.static import ops
from foldbatch.static.backends import BACKENDS

pytestmark = [
    pytest.mark.numba,
    pytest.mark.skipif("numba" not in BACKENDS, reason="numba is not installed"),
]
WORD = fb.Scalar("int32") >> fb.Embedding(9, 5, name="words")


def with_loss(block: fb.Block) -> fb.Block:
    """A loss that gives every number of the result a cotangent of its own."""
    return block >> fb.Function(lambda x: ops.sum(ops.square(x - 0.3))) >> fb.Loss()


def binary_trees() -> fb.Block:
    """A Tree-LSTM with words at all nodes: operands in an arena, data, cotangents to store."""
    tree = fb.ForwardDeclaration(output_type=(4, 4))
    cell = fb.TreeLSTM(4)
    word = fb.GetItem(0) >> WORD
    leaf = fb.AllOf(word, fb.Zeros(((4, 4), (4, 4)))) >> cell
    node = fb.AllOf(word, fb.AllOf(fb.GetItem(1) >> tree(), fb.GetItem(2) >> tree())) >> cell
    tree.resolve_to(fb.OneOf(len, {1: leaf, 3: node}))
    return with_loss(tree() >> fb.GetItem(0))


def chain() -> fb.Block:
    """An LSTM whose outputs are all used, so states have several readers: rows by index."""
    words = fb.Map(WORD) >> fb.RNN(fb.LSTMCell(4)) >> fb.GetItem(0)
    return with_loss(words >> fb.Map(fb.Function(lambda h: h * 2.0)) >> fb.Sum())


def twice() -> fb.Block:
    """A state that its successor reads twice, cotangents of one row being added up; a weight without axes."""
    step = fb.Function(lambda s, x: ops.tanh(ops.concat([s, x, s]) @ W) * SCALE)
    return with_loss(fb.Map(WORD) >> fb.Fold(step, fb.Zeros(4)))


W = fb.Parameter([13, 4], init=np.random.default_rng(3).normal(size=(13, 4)), name="w")


SCALE = fb.Parameter("float32", init=0.9, name="scale")
DOUBLE = fb.types.TensorType((3,), "float64")
V = fb.Parameter(fb.types.TensorType((5, 3), "float64"), init=np.random.default_rng(4).normal(size=(5, 3)))


def in_double_precision() -> fb.Block:
    """Sums over an axis of each instance too."""
    step = fb.Function(
        lambda s, x: ops.tanh(ops.concat([s, x]) @ V + ops.sum(ops.reshape(s, (3, 1)), axis=1))
    )
    return with_loss(fb.Map(fb.Vector(2, "float64")) >> fb.Fold(step, fb.Zeros(DOUBLE)))


def _tree(rng: np.random.Generator, leaves: int) -> tuple[Any, ...]:
    word = int(rng.integers(9))
    if leaves == 1:
        return (word,)
    left = int(rng.integers(1, leaves))
    return (word, _tree(rng, left), _tree(rng, leaves - left))


def examples_of(model: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    if model is binary_trees:
        return [_tree(rng, int(n)) for n in rng.integers(1, 30, 12)]
    lengths = rng.integers(0, 9, 7)
    if model is in_double_precision:
        return [rng.normal(size=(n, 2)).tolist() for n in lengths]
    return [rng.integers(0, 9, n).tolist() for n in lengths]


def outcome(program: fb.Program, examples: list[Any]) -> tuple[Any, ...]:
    loss, gradients = program.value_and_grad(examples)
    found = {name: g.dense() if hasattr(g, "dense") else g for name, g in gradients.items()}
    return program.run(examples).metrics, loss, found


@pytest.mark.parametrize("layout", ["consumer", "producer"])
@pytest.mark.parametrize("model", [binary_trees, chain, twice, in_double_precision], ids=lambda m: m.__name__)
def test_all_levels_at_once_give_the_same_bits(model: Any, layout: str) -> None:
    block = model()
    program = fb.compile(block, "numba", layout=layout, threads=1, debug=True)
    examples = examples_of(model)
    compiled = [kernel for cell in program.model.cells for kernel in cell.kernels if kernel.levels]
    stages = {"forward_step", "infer_forward_step", "backward_step"}
    without = {"backward_step"} if model is in_double_precision else set()  # it broadcasts a sum's cotangent
    assert {kernel.name.split()[-1] for kernel in compiled} == stages - without
    ran: list[str] = []
    run_all = Execution._run_all

    def counted(self: Execution, kernel: Any, steps: Any) -> None:
        ran.extend([kernel.name] if kernel.levels and len(steps) > 1 else [])
        run_all(self, kernel, steps)

    def one_by_one(self: Execution, kernel: Any, steps: Any) -> None:
        for step in steps:
            self._run(kernel, step)

    with mock.patch.object(Execution, "_run_all", counted):
        together = outcome(program, examples)
    assert {name.split()[-1] for name in ran} == {kernel.name.split()[-1] for kernel in compiled}
    with mock.patch.object(Execution, "_run_all", one_by_one):
        apart = outcome(program, examples)
    assert together[1] == apart[1]
    for name, gradient in together[2].items():
        np.testing.assert_array_equal(gradient, apart[2][name])
    reference = outcome(fb.compile(block, "reference"), examples)
    np.testing.assert_allclose(together[1], reference[1], rtol=1e-5)
    for name, gradient in together[2].items():
        np.testing.assert_allclose(gradient, reference[2][name], rtol=1e-3, atol=1e-4)
    counted_calls = program.describe(examples).calls_forward
    with mock.patch.object(Execution, "_run_all", one_by_one):
        assert program.describe(examples).calls_forward == counted_calls
