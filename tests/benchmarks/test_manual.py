"""The program written by hand computes what ours does, however it is cut up."""

import numpy as np
import pytest

import foldbatch as fb
from benchmarks import manual
from benchmarks.fold_model import fold_model, random_tree, words_of
from benchmarks.manual import Manual, shape_of

SIZE, LEAVES = 5, 7


def program_and_trees(seed: int, batch: int, leaves: int = LEAVES):
    rng = np.random.default_rng(seed)
    shape = random_tree(rng, leaves)
    trees = [words_of(shape, rng) for _ in range(batch)]
    program = fb.compile(fold_model(SIZE, leaves), "reference")
    for name in ("hidden.bias", "gates.bias"):
        program.params[name] = rng.normal(size=program.params[name].shape)
    return program, trees


def words(trees) -> np.ndarray:
    return np.array([[node.label for node in tree.leaves()] for tree in trees])


def as_double(program) -> dict[str, np.ndarray]:
    return {name: np.asarray(array, "float64") for name, array in program.params.items()}


@pytest.mark.parametrize("by_node", [False, True])
@pytest.mark.parametrize("parts", [0, 1, 2, 9])
@pytest.mark.parametrize(("batch", "leaves"), [(1, 2), (1, 7), (4, 7), (3, 12)])
def test_loss_and_gradients_are_those_of_the_oracle(batch, leaves, parts, by_node):
    program, trees = program_and_trees(batch, batch, leaves)
    expected, gradients = program.value_and_grad(trees)
    by_hand = Manual(shape_of(trees[0]), batch, as_double(program), parts=parts)
    for _ in range(2):  # buffers are used again
        loss, found = by_hand.value_and_grad(words(trees), by_node=by_node)
        assert loss == pytest.approx(expected, rel=1e-12)
        assert found.keys() == gradients.keys()
        assert any(np.abs(found["gates.bias"]) > 1e-6)
        for name, gradient in gradients.items():
            dense = (g.dense() if isinstance(g, fb.params.SparseRows) else g for g in (found[name], gradient))
            np.testing.assert_allclose(*dense, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.llvm
def test_compiled_loops_compute_what_numpy_does():
    """In float32, up to rounding."""
    pytest.importorskip("llvmlite")
    program, trees = program_and_trees(0, 3)
    compiled = Manual(shape_of(trees[0]), 3, program.params)
    assert compiled._parts[0].loops.gates is not manual._gates
    loss, found = compiled.value_and_grad(words(trees))
    expected, gradients = Manual(shape_of(trees[0]), 3, as_double(program)).value_and_grad(words(trees))
    assert loss == pytest.approx(expected, rel=1e-5)
    for name in gradients.keys() - {"leaf.weight"}:
        np.testing.assert_allclose(found[name], gradients[name], rtol=1e-4, atol=1e-6, err_msg=name)
