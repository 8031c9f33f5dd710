"""The binary Tree-LSTM against Tai, Socher and Manning 2015, equations 9 to 14, node by node."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.zoo import Task, Words, tree_lstm
from tests.zoo.checks import TREE, WORDS, compiled, cross_entropy, sigmoid

HIDDEN = 3


def state(node, p):
    """h and c of a node; gates stand in the order u, i, o, f."""
    bias = np.split(p["tree_lstm.bias"], 4)
    if node.is_leaf:
        x = p["words.weight"][WORDS[node.token]]
        u, i, o, _ = (
            x @ w + b for w, b in zip(np.split(p["tree_lstm.weight"], 4, axis=1), bias, strict=True)
        )
        c = sigmoid(i) * np.tanh(u)
        return sigmoid(o) * np.tanh(c), c
    (h_l, c_l), (h_r, c_r) = (state(child, p) for child in node)
    u, i, o, f_l, f_r = np.split(np.concatenate([h_l, h_r]) @ p["tree_lstm.recurrent"], 5)
    c = sigmoid(i + bias[1]) * np.tanh(u + bias[0])
    c = c + sigmoid(f_l + bias[3]) * c_l + sigmoid(f_r + bias[3]) * c_r
    return sigmoid(o + bias[2]) * np.tanh(c), c


def test_scores_and_losses_are_those_of_the_equations():
    program, p = compiled(tree_lstm(Words(WORDS, 4), Task("nodes", 5), hidden=HIDDEN))
    results = program.run([TREE], losses=True)
    nodes = [TREE[0], TREE[1][0], TREE[1][1], TREE[1], TREE]
    scores = [state(node, p)[0] @ p["classify.weight"] + p["classify.bias"] for node in nodes]
    np.testing.assert_allclose(results[0], scores[-1], rtol=1e-4)
    expected = sum(cross_entropy(s, node.label) for s, node in zip(scores, nodes, strict=True))
    assert results.loss == pytest.approx(expected, rel=1e-5)


def test_a_tree_that_is_not_binary_is_refused():
    program = fb.compile(tree_lstm(Words(WORDS, 4), Task("nodes", 5), hidden=HIDDEN))
    three = fb.trees.parse_brackets("(1 (2 not) (2 very) (4 good))", labels=int)
    with pytest.raises(fb.errors.ExampleError, match="expected 2 items, found 3"):
        program.run([three])
