"""A Tree-LSTM on an encoder of PyTorch, on a treebank of a few lines."""

import pytest

import foldbatch as fb

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")

TREES = "(4 (3 good) (2 film))\n(0 (1 bad) (2 film))\n(2 (2 a) (2 (2 film) (2 .)))\n(3 good)\n"


@pytest.fixture(scope="module")
def example(load):
    return load("torch/contextual_trees")


def test_nodes_and_labels_stand_in_one_order(example):
    trees = [fb.trees.parse_brackets(line) for line in TREES.splitlines()]
    words = fb.trees.Vocabulary(["good", "film", "bad", "a", "."])
    model = example.Model(words, 4, 3)
    _, labels, places = model(trees)
    assert labels.tolist() == [3, 2, 4, 1, 2, 0, 2, 2, 2, 2, 2, 3]
    assert places.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3]
    model.eval()
    alone, _, _ = model(trees[2:3])
    torch.testing.assert_close(model(trees)[0][6:11], alone)
    example.loss_of(model, trees).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())
