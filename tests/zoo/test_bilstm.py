"""The LSTM in both directions against its equations, step by step."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.zoo import Task, Words, bilstm
from tests.zoo.checks import TREE, WORDS, compiled, sigmoid


def outputs(words, p, name):
    """h after each word; gates stand in the order u, i, o, f."""
    h, c, all_h = np.zeros(3), np.zeros(3), []
    for word in words:
        x = p["words.weight"][WORDS[word]]
        gates = x @ p[f"{name}.weight"] + h @ p[f"{name}.recurrent"] + p[f"{name}.bias"]
        u, i, o, f = np.split(gates, 4)
        c = sigmoid(i) * np.tanh(u) + sigmoid(f) * c
        h = sigmoid(o) * np.tanh(c)
        all_h.append(h)
    return np.array(all_h)


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_scores_are_those_of_the_equations(pooling):
    program, p = compiled(bilstm(Words(WORDS, 4), Task(classes=2), hidden=3, pooling=pooling))
    words = ["not", "very", "new", "good"]
    forward, backward = outputs(words, p, "forward"), outputs(words[::-1], p, "backward")
    both = (h[-1] if pooling == "last" else h.mean(axis=0) for h in (forward, backward))
    expected = np.concatenate([*both]) @ p["classify.weight"] + p["classify.bias"]
    of_list, of_string = program.run([(words, None), ("not very new good", None)])
    np.testing.assert_allclose(of_list, expected, rtol=1e-4)
    np.testing.assert_array_equal(of_list, of_string)


def test_the_words_of_a_tree_are_read():
    program, _ = compiled(bilstm(Words(WORDS, 4), Task("root", 5), hidden=3))
    of_tree = program.run([TREE], losses=True)
    assert of_tree[0].shape == (5,) and of_tree.loss > 0


@pytest.mark.parametrize(
    "task, given, message",
    [
        (Task("nodes", 5), {}, "expected a task of whole examples, found nodes"),
        (Task(), {"pooling": "first"}, "expected pooling last or mean, found 'first'"),
    ],
)
def test_wrong_settings_are_refused(task, given, message):
    with pytest.raises(fb.errors.BlockValueError, match=message):
        bilstm(Words(WORDS, 4), task, **given)
