"""Predictions of structures without labels, for examples and nodes."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.recipes.predicting import drawing, prediction, predictions, probabilities
from foldbatch.zoo import Task, Words, tree_lstm

TREE = fb.trees.parse_brackets("(S (NP good) (VP film))")
WORDS = Words(fb.trees.Vocabulary(["good", "film"]), 3)
NOTES = {"task": "nodes", "classes": ["bad", "good"]}
CLASSES = {"task": "class", "classes": ["a", "b"]}


def test_every_node_of_an_unlabelled_tree_is_told():
    program = fb.compile(tree_lstm(WORDS, Task("nodes", 2), hidden=2))
    first, second = predictions([program], NOTES, [TREE[0].tree, TREE], nodes=True)
    assert first == second
    assert [(node["parent"], node["word"]) for node in first["nodes"]] == [
        (2, "good"),
        (2, "film"),
        (-1, None),
    ]
    root = first["nodes"][-1]
    assert root["label"] == first["label"]
    assert root["probability"] == pytest.approx(first["probabilities"][first["label"]], abs=1e-5)
    drawn = drawing(TREE, first)
    assert drawn.count("\n") == 2 and drawn.splitlines()[0] == f"{root['label']} {root['probability']:.0%}"


def test_examples_are_told_in_batches(monkeypatch):
    monkeypatch.setattr("foldbatch.recipes.predicting.BATCH", 2)
    program = fb.compile(fb.GetItem(0) >> fb.Vector(2))
    told = list(predictions([program], CLASSES, [[0, 9], [9, 0], [0, 9]]))
    assert [one["label"] for one in told] == ["b", "a", "b"]
    assert told[0]["probabilities"] == {"a": 0.000123, "b": 0.999877}


def test_several_models_tell_their_mean():
    trees = [fb.compile(tree_lstm(WORDS, Task("nodes", 2), hidden=2), seed=seed) for seed in (0, 1)]
    first, second = (next(predictions([program], NOTES, [TREE], nodes=True)) for program in trees)
    (both,) = predictions(trees, NOTES, [TREE], nodes=True)
    for name in ("bad", "good"):
        mean = (first["probabilities"][name] + second["probabilities"][name]) / 2
        assert both["probabilities"][name] == pytest.approx(mean, abs=1e-5)
    root = both["nodes"][-1]
    assert root["probability"] == pytest.approx(both["probabilities"][both["label"]], abs=1e-5)


def test_a_number_is_told():
    assert prediction(np.array(2.5, "float32"), []) == {"number": 2.5}
    assert drawing("x", {"number": 2.5}) == "2.5\nx"


def test_nodes_need_a_model_of_nodes():
    program = fb.compile(fb.GetItem(0) >> fb.Vector(2))
    with pytest.raises(fb.errors.ExampleError, match="expected a model that is trained on every node"):
        list(predictions([program], CLASSES, [[1, 2]], nodes=True))


def test_words_are_no_tree():
    program = fb.compile(tree_lstm(WORDS, Task("nodes", 2), hidden=2))
    with pytest.raises(
        fb.errors.ExampleError, match="expected a tree, found list of 2; give trees in brackets"
    ):
        list(predictions([program], NOTES, [["good", "film"]]))


def test_probabilities_of_large_scores():
    np.testing.assert_allclose(probabilities(np.array([[1e4, 0.0], [0.0, 0.0]])), [[1, 0], [0.5, 0.5]])
