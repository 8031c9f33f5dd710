"""The models of the zoo learn, and batched they compute what one at a time by the oracle does."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.bench import zoo_models
from foldbatch.bench.workload import random_trees
from foldbatch.bench.zoo_models import MODELS, dependencies
from foldbatch.trees import Tree, Vocabulary

TREES = [*random_trees(3, seed=1), Tree.leaf(2, "w7"), Tree.from_nested((0, (3, "w1"), (1, "w2")))]
VOCABULARY = Vocabulary.count(word for tree in TREES[1:] for word in tree.words())
SIZE = 3
# what a model classifies of a tree
CLASSIFIED = {
    "BiLSTM tagger": lambda tree: len(tree.words()),
    "child-sum Tree-LSTM": lambda tree: len(tree.words()),
    "letters and words": lambda tree: 1,
}


def _dense(gradient: fb.SparseRows | np.ndarray) -> np.ndarray:
    return gradient.dense() if isinstance(gradient, fb.SparseRows) else gradient


@pytest.mark.parametrize("name", MODELS)
def test_batched_is_one_at_a_time(name):
    """Loss, scores and gradients, on trees that one node makes up, too; every parameter gets a gradient."""
    model = MODELS[name]
    block = model.block(SIZE, VOCABULARY)
    trees = [model.example(tree) for tree in TREES]
    oracle = fb.compile(block, "reference")
    loss, gradients = oracle.value_and_grad(trees)
    program = fb.compile(block, threads=2, debug=True)
    found, others = program.value_and_grad(trees)
    assert found == pytest.approx(loss, rel=1e-4)
    assert others.keys() == gradients.keys()
    for key, gradient in gradients.items():
        assert np.abs(_dense(gradient)).max() > 0, key
        np.testing.assert_allclose(_dense(others[key]), _dense(gradient), rtol=1e-3, atol=1e-4, err_msg=key)
    for scores, expected in zip(program.run(trees), oracle.run(trees), strict=True):
        np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_without_knowledge_loses_the_logarithm_of_its_classes(name):
    """At every node, at every word, or once: with weights of zero all classes are as likely."""
    model = MODELS[name]
    program = fb.compile(model.block(SIZE, VOCABULARY), "numpy")
    for key in program.params:
        program.params[key] = np.zeros_like(program.params[key])
    count = CLASSIFIED.get(name, lambda tree: tree.size)
    loss, _ = program.value_and_grad([model.example(tree) for tree in TREES])
    assert loss == pytest.approx(sum(map(count, TREES)) * np.log(5), rel=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_models_learn(name):
    model = MODELS[name]
    program = fb.compile(model.block(8, VOCABULARY), "numpy")
    trees, optimizer = [model.example(tree) for tree in TREES[:3]], fb.Adam(lr=0.02)
    first, _ = program.value_and_grad(trees)
    for _ in range(20):
        loss, gradients = program.value_and_grad(trees)
        optimizer.update(program.params, gradients)
    assert loss < 0.9 * first


def test_the_first_word_of_a_phrase_heads_it():
    """All other children's heads depend on it, nearest phrases first."""
    tree = Tree.from_nested((0, (1, (2, "a"), (3, (4, "b"), (5, "c"))), (6, (7, "d"), (8, "e"))))
    found = dependencies(tree)
    root = found.root
    assert (root.token, root.label) == ("a", 0)
    assert [(node.token, node.label) for node in root] == [("b", 3), ("d", 6)]
    assert [[(node.token, node.label) for node in child] for child in root] == [[("c", 5)], [("e", 8)]]


def test_dependencies_of_any_tree_are_its_words():
    for tree in random_trees(5, seed=2):
        found = dependencies(tree)
        assert sorted(found.tokens) == sorted(tree.words())
        assert found.label == tree.label


def test_letters_beyond_ascii_are_one():
    program = fb.compile(zoo_models.letters_and_words(SIZE, VOCABULARY), "numpy")
    a, b, c = program.run([Tree.leaf(0, "x\u00e9"), Tree.leaf(0, "x\u4e00"), Tree.leaf(0, "xe")])
    np.testing.assert_array_equal(a, b)
    assert not np.allclose(a, c)


def test_each_word_has_the_states_of_its_own_place():
    """From the right a word's state knows what follows, from the left what comes before."""
    program = fb.compile(zoo_models.tagger(SIZE, VOCABULARY), "numpy")
    words = [f"w{i}" for i in range(1, 4)]
    sentences = [
        Tree.from_nested((0, (0, a), (0, (0, b), (0, c))))
        for a, b, c in (words, ["w7", *words[1:]], [*words[:2], "w7"])
    ]
    (weight,) = (name for name in program.params if name.startswith("linear") and "weight" in name)
    both = np.array(program.params[weight])
    for half, (same_last, same_first) in enumerate([(False, True), (True, False)]):
        program.params[weight] = np.where((np.arange(2 * SIZE) // SIZE == half)[:, None], both, 0)
        base, other_first, other_last = (
            [np.array(scores) for scores in found] for found in program.run(sentences)
        )
        assert np.allclose(base[-1], other_first[-1]) == same_last
        assert np.allclose(base[0], other_last[0]) == same_first
