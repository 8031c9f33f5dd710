"""PyTorch's hand-batched program for Fold's model computes what ours does."""

import numpy as np
import pytest

from benchmarks.fold_model import fold_model, random_tree, shape_of, words_of
from benchmarks.gpu.contenders import MODELS, OurModel
from benchmarks.gpu.torch_fold import TorchFold
from benchmarks.gpu.torch_graph import TorchCaptured
from benchmarks.gpu.trees import sst_like_trees
from foldbatch import compile
from foldbatch.params.parameters import dense
from tests.benchmarks.flat_trees import batch_loss, node_logits, random_parameters, random_trees


@pytest.mark.parametrize("by_node", [False, True])
@pytest.mark.parametrize("captured", [False, True])
def test_loss_gradients_and_roots_are_those_of_our_program(by_node, captured):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    program = compile(fold_model(5, 7), "numpy")
    for name in ("hidden.bias", "gates.bias"):
        program.params[name] = rng.normal(size=program.params[name].shape)
    tree = random_tree(rng, 7)
    model = TorchFold(shape_of(tree), 3, dict(program.params.items()), by_node=by_node, captured=captured)
    for _ in range(2):  # buffers are used again
        trees = [words_of(tree, rng) for _ in range(3)]
        words = np.array([[node.label for node in tree.leaves()] for tree in trees])
        expected, gradients = program.value_and_grad(trees)
        loss, computed = model.value_and_grad(words)
        assert float(loss) == pytest.approx(expected, rel=1e-5)
        assert computed.keys() == gradients.keys()
        assert any(np.abs(gradients["gates.bias"]) > 1e-6)
        for name, gradient in computed.items():
            np.testing.assert_allclose(gradient, dense(gradients[name]), rtol=1e-4, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(model.run(words), np.stack(list(program.run(trees))), rtol=1e-5)


HIDDEN, WORDS = 3, 9


@pytest.fixture(scope="module")
def batches():
    return [random_trees(0, [5, 2, 9]), random_trees(1, [1, 1, 1]), random_trees(2, [30, 1, 4])]


def captured(batches, parameters):
    pytest.importorskip("torch")
    return TorchCaptured(HIDDEN, WORDS, parameters, batches)


def test_loss_and_scores_are_those_of_plain_recursion_whatever_ran_before(batches):
    parameters = random_parameters(1, HIDDEN, WORDS)
    model = captured(batches, parameters)
    for trees in [*batches, *batches]:
        assert model.loss(trees) == pytest.approx(batch_loss(trees, parameters, HIDDEN), rel=1e-12)
        roots = [node_logits(tree, parameters, HIDDEN)[-1] for tree in trees]
        np.testing.assert_allclose(model.infer(trees), roots, rtol=1e-10)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "SST Tree-LSTM"])
def test_loss_and_training_are_those_of_our_block(name):
    pytest.importorskip("torch")
    trees = sst_like_trees(6, seed=1, words=50)
    ours = OurModel(MODELS[name], 5, 50, "numpy")
    examples = [ours.model.example(tree) for tree in trees]
    (make,) = ours.model.peers.values()
    peer = make(5, 50, ours.parameters())
    flat = [ours.flat(example) for example in examples]
    for _ in range(3):
        assert float(ours.step(examples, 6)) / 6 == pytest.approx(peer.step(flat), rel=1e-4)
    assert np.isfinite(peer.infer(flat)).all()
