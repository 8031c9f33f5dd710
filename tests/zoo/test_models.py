"""The table of models: each is documented, says its source, and is made of functions that can be imported."""

import inspect
import pickle

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.zoo import MODELS, Task, Words, bilstm, child_sum, json, rntn, tree_lstm
from tests.zoo.checks import TREE, WORDS, compiled, cross_entropy, sigmoid

TASKS = {"bilstm": "root"}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_says_what_it_is_and_where_it_is_from(name):
    text = inspect.getdoc(MODELS[name])
    assert "Source: " in text and "Raises:" in text
    assert MODELS[name].__name__ == name and getattr(fb.zoo, name) is MODELS[name]


@pytest.mark.parametrize("name", ["tree_lstm", "child_sum", "rntn", "bilstm"])
def test_a_model_is_made_of_functions_that_can_be_imported(name):
    """Nothing of it is a lambda or a closure, so that a file can hold it."""
    task = Task(TASKS.get(name, "nodes"), 5, dropout=0.5, weights=(1.0,) * 5)
    block = MODELS[name](Words(WORDS, 3, dropout=0.5, spread=0.1), task, hidden=2)
    again = fb.compile(pickle.loads(pickle.dumps(block)), seed=3)
    assert again.run([TREE])[0].tolist() == fb.compile(block, seed=3).run([TREE])[0].tolist()


def test_a_record_is_classified_beside_one_more_layer():
    program, p = compiled(json(fb.GetItem("sizes") >> fb.Vector(2), Task(classes=3), hidden=4))
    first = np.maximum([1, 2] @ p["hidden.weight"] + p["hidden.bias"], 0)
    expected = [1, 2, *first] @ p["classify.weight"] + p["classify.bias"]
    np.testing.assert_allclose(program.run([({"sizes": [1, 2]}, None)])[0], expected, rtol=1e-5)


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


def vector(node, p):
    if node.is_leaf:
        x = p["words.weight"][WORDS[node.token]]
        return np.tanh(x @ p["rntn.weight"] + p["rntn.bias"]) if "rntn.weight" in p else x
    z = np.concatenate([vector(child, p) for child in node])
    bilinear = np.array([z @ p["rntn.tensor"][:, :, k] @ z for k in range(len(z) // 2)])
    return np.tanh(bilinear + z @ p["rntn.recurrent"] + p["rntn.bias"])


def check_nodes(block, state):
    """Check scores and losses at all nodes of a tree, whose states are those of equations."""
    program, p = compiled(block)
    results = program.run([TREE], losses=True)
    nodes = [TREE[0], TREE[1][0], TREE[1][1], TREE[1], TREE]
    scores = [state(node, p) @ p["classify.weight"] + p["classify.bias"] for node in nodes]
    np.testing.assert_allclose(results[0], scores[-1], rtol=1e-4)
    expected = sum(cross_entropy(s, node.label) for s, node in zip(scores, nodes, strict=True))
    assert results.loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("hidden", [None, 2])
def test_rntn_scores_and_losses_are_those_of_the_equations(hidden):
    check_nodes(rntn(Words(WORDS, 3), Task("nodes", 5), hidden=hidden), vector)


HIDDEN = 3


def binary_state(node, p):
    """h and c of a node; gates stand in the order u, i, o, f."""
    bias = np.split(p["tree_lstm.bias"], 4)
    if node.is_leaf:
        x = p["words.weight"][WORDS[node.token]]
        u, i, o, _ = (
            x @ w + b for w, b in zip(np.split(p["tree_lstm.weight"], 4, axis=1), bias, strict=True)
        )
        c = sigmoid(i) * np.tanh(u)
        return sigmoid(o) * np.tanh(c), c
    (h_l, c_l), (h_r, c_r) = (binary_state(child, p) for child in node)
    u, i, o, f_l, f_r = np.split(np.concatenate([h_l, h_r]) @ p["tree_lstm.recurrent"], 5)
    c = sigmoid(i + bias[1]) * np.tanh(u + bias[0])
    c = c + sigmoid(f_l + bias[3]) * c_l + sigmoid(f_r + bias[3]) * c_r
    return sigmoid(o + bias[2]) * np.tanh(c), c


def test_scores_and_losses_are_those_of_the_equations():
    block = tree_lstm(Words(WORDS, 4), Task("nodes", 5), hidden=HIDDEN)
    check_nodes(block, lambda node, p: binary_state(node, p)[0])


def test_a_tree_that_is_not_binary_is_refused():
    program = fb.compile(tree_lstm(Words(WORDS, 4), Task("nodes", 5), hidden=HIDDEN))
    three = fb.trees.parse_brackets("(1 (2 not) (2 very) (4 good))", labels=int)
    with pytest.raises(fb.errors.ExampleError, match="expected 2 items, found 3"):
        program.run([three])


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
