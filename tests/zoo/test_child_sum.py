"""The child-sum Tree-LSTM against Tai, Socher and Manning 2015, equations 2 to 8, with kinds and counts."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.zoo import Task, Words, child_sum
from tests.zoo.checks import TREE, WORDS, compiled, cross_entropy, sigmoid

KINDS = fb.trees.Vocabulary(["S", "NP"])
# a dependency tree, say: words in inner nodes too, one to three children, a node without a word
PHRASE = fb.trees.Tree([3, 3, 3, 4, -1], ["NP", "X", "NP", "S", "S"], ["not", None, "very", "good", "new"])


def state(node, p, kinds):
    """h, c and how often each feature was seen below a node; gates stand in the order u, i, o, f."""
    x = np.zeros(4) if node.token is None else p["words.weight"][WORDS[node.token]]
    if kinds:
        x = x + p["kinds.weight"][KINDS[node.label]]
    states = [state(child, p, kinds) for child in node]
    name = "child_sum_tree_lstm"
    u, i, o, f = np.split(x @ p[f"{name}.weight"] + p[f"{name}.bias"], 4)
    total = sum((h for h, _, _ in states), np.zeros(3))
    for_u, for_i, for_o = np.split(total @ p[f"{name}.recurrent"], 3)
    c = sigmoid(i + for_i) * np.tanh(u + for_u)
    for h_k, c_k, _ in states:
        c = c + sigmoid(f + h_k @ p[f"{name}.recurrent_forget"]) * c_k
    h = sigmoid(o + for_o) * np.tanh(c)
    if "see.weight" not in p:
        return h, c, 0
    seen = np.maximum(np.concatenate([x, h]) @ p["see.weight"] + p["see.bias"], 0)
    return h, c, seen + sum(s for _, _, s in states)


@pytest.mark.parametrize("counts", [False, True])
def test_scores_and_loss_are_those_of_the_equations(counts):
    block = child_sum(Words(WORDS, 4), Task(classes=2), kinds=KINDS, hidden=3, counts=counts)
    program, p = compiled(block)
    results = program.run([(PHRASE, 1), (PHRASE[0][0], None)], losses=True)
    for result, node in zip(results, (PHRASE, PHRASE[0][0]), strict=True):
        h, _, seen = state(node, p, kinds=True)
        top = np.concatenate([np.log(1 + seen), h]) if counts else h
        np.testing.assert_allclose(result, top @ p["classify.weight"] + p["classify.bias"], rtol=1e-4)
    assert results.loss == pytest.approx(cross_entropy(results[0].astype(float), 1), rel=1e-5)


def test_what_stands_in_a_node_is_dropped_while_training_only():
    words = Words(WORDS, 4)
    plain, dropped = (fb.compile(child_sum(words, Task(), hidden=3, dropout=share)) for share in (0.0, 0.5))
    for name, value in plain.params.items():
        dropped.params[name] = value
    example = [(PHRASE, 1)]
    np.testing.assert_array_equal(dropped.run(example)[0], plain.run(example)[0])
    losses = {float(dropped.value_and_grad(example, step=step)[0]) for step in range(4)}
    assert len(losses) == 4


def test_every_node_of_a_labelled_tree_is_told():
    program, p = compiled(child_sum(Words(WORDS, 4), Task("nodes", 5), hidden=3))
    results = program.run([TREE], losses=True)
    nodes = [TREE[0], TREE[1][0], TREE[1][1], TREE[1], TREE]
    scores = [state(node, p, kinds=False)[0] @ p["classify.weight"] + p["classify.bias"] for node in nodes]
    expected = sum(cross_entropy(s, node.label) for s, node in zip(scores, nodes, strict=True))
    assert results.loss == pytest.approx(expected, rel=1e-5)


def test_labels_are_kinds_or_classes():
    with pytest.raises(
        fb.errors.BlockValueError, match="expected labels that are kinds or classes, found both"
    ):
        child_sum(Words(WORDS, 4), Task("nodes", 5), kinds=KINDS)
