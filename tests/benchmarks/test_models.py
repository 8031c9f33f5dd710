"""What benchmarks measure computes what it should: models, their data, and what is compared with them."""

import json
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

import foldbatch as fb
from benchmarks import deciding, first_step, graphs, sequences
from benchmarks.command import main
from benchmarks.fold_model import fold_model
from benchmarks.ours import Ours, OursOfFlat
from benchmarks.peers import parameter_shapes
from benchmarks.sequence_ours import OurSequences
from benchmarks.sequence_peer import flat_sentence, pack
from benchmarks.workload import random_trees, tree_lstm, walk_of, words_of
from foldbatch.errors import FoldbatchError
from foldbatch.params.parameters import dense
from foldbatch.trees import Vocabulary
from tests.backends import TESTED
from tests.benchmarks.flat_trees import batch_loss, node_logits, sigmoid
from tests.benchmarks.wrong_peer import wrong_peer

pytestmark = pytest.mark.slow


def test_loss_equals_a_recursion_in_float64() -> None:
    """Leaf gates i, o, u; node gates i, f_l, f_r, o, u; a cross-entropy at every node."""
    trees = random_trees(5, seed=3, words=20)
    vocabulary = fb.trees.Vocabulary.count(word for tree in trees for word in tree.words())
    program = fb.compile(tree_lstm(6, vocabulary))
    w = {name: np.array(value, np.float64) for name, value in program.params.items()}
    total = 0.0

    def state(node: fb.trees.TreeNode) -> tuple[np.ndarray, np.ndarray]:
        nonlocal total
        if node.is_leaf:
            i, o, u = np.split(
                w["embedding.weight"][vocabulary[node.token]] @ w["leaf.weight"] + w["leaf.bias"], 3
            )
            c = sigmoid(i) * np.tanh(u)
        else:
            (hl, cl), (hr, cr) = (state(child) for child in node.children)
            gates = np.concatenate([hl, hr]) @ w["node.weight"] + w["node.bias"]
            i, fl, fr, o, u = np.split(gates, 5)
            c = sigmoid(i) * np.tanh(u) + sigmoid(fl) * cl + sigmoid(fr) * cr
        h = sigmoid(o) * np.tanh(c)
        logits = h @ w["out.weight"] + w["out.bias"]
        total += np.log(np.exp(logits).sum()) - logits[node.label]
        return h, c

    for tree in trees:
        state(tree.root)
    assert np.isclose(program.value_and_grad(trees)[0], total, rtol=1e-5)


def test_random_trees_repeat_by_seed_and_are_of_a_sentence_s_size() -> None:
    """About 19 words in the mean, as in SST; binary; labels 0 to 4."""
    trees = random_trees(200, seed=1)
    assert trees == random_trees(200, seed=1) != random_trees(200, seed=2)
    leaves = np.array([len(list(tree.words())) for tree in trees])
    assert 16 < leaves.mean() < 22
    assert all(len(node) in (0, 2) for tree in trees[:20] for node in tree.nodes())
    assert {node.label for tree in trees for node in tree.nodes()} == set(range(5))


TREES = random_trees(5, seed=4)
VOCABULARY = Vocabulary.count(word for tree in TREES for word in tree.words())


@pytest.fixture(scope="module")
def ours() -> Ours:
    return Ours(4, VOCABULARY, "numpy")


def test_loss_and_scores_are_those_of_plain_recursion(ours) -> None:
    parameters, flat = ours.parameters(), [ours.flat(tree) for tree in TREES]
    assert {name: a.shape for name, a in parameters.items()} == parameter_shapes(4, len(VOCABULARY))
    assert ours.loss(TREES) == pytest.approx(batch_loss(flat, parameters, 4), rel=1e-5)
    expected = [node_logits(tree, parameters, 4)[-1] for tree in flat]
    np.testing.assert_allclose(ours.infer(TREES), expected, atol=1e-5)


def test_of_flat_trees_it_is_the_same_model() -> None:
    """And it trains."""
    ours = Ours(4, VOCABULARY, "numpy")
    flat = [ours.flat(tree) for tree in TREES]
    other = OursOfFlat(4, ours.parameters())
    assert other.loss(flat) == pytest.approx(ours.loss(TREES), rel=1e-6)
    np.testing.assert_allclose(other.infer(flat), ours.infer(TREES), atol=1e-6)
    before = ours.loss(TREES)
    assert ours.step(TREES) == pytest.approx(before, rel=1e-6)
    assert other.step(flat) == pytest.approx(before, rel=1e-6)
    assert ours.loss(TREES) < before
    assert other.loss(flat) == pytest.approx(ours.loss(TREES), rel=1e-5)


def test_a_node_computes_what_the_paper_s_does():
    """Written out in NumPy, for one node."""
    program = fb.compile(fold_model(3, 2), "numpy")
    rng = np.random.default_rng(0)
    for name, array in program.params.items():
        program.params[name] = rng.normal(size=array.shape)
    p = program.params
    left, right = p["leaf.weight"]
    hidden = np.maximum(np.concatenate([left, right]) @ p["hidden.weight"] + p["hidden.bias"], 0)
    g = hidden @ p["gates.weight"] + p["gates.bias"]
    f_left, f_right, i = np.split(1 / (1 + np.exp(-g[:9])), 3)
    expected = f_left * left + f_right * right + i * np.tanh(g[9:])
    (found,) = program.run([fb.trees.Tree([2, 2, -1], [0, 1, None])])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    loss, _ = program.value_and_grad([fb.trees.Tree([2, 2, -1], [0, 1, None])])
    assert loss == pytest.approx(0.5 * (expected**2).sum(), rel=1e-5)


SENTENCES = [(["good", "film"], 4), (["not", "good", "at", "all"], 1), (["film"], 2)]
WORDS = Vocabulary.count(word for words, _ in SENTENCES for word in words)


def last(kind, p, words):
    """Return the last h, with gates in PyTorch's order."""
    h = c = np.zeros(3)
    for word in words:
        read = p["weight_ih"] @ p["embedding"][word] + p["bias_ih"]
        kept = p["weight_hh"] @ h + p["bias_hh"]
        if kind == "lstm":
            i, f, u, o = np.split(read + kept, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(u)
            h = sigmoid(o) * np.tanh(c)
        else:
            (r, z, n), (rr, rz, rn) = np.split(read, 3), np.split(kept, 3)
            z = sigmoid(z + rz)
            h = (1 - z) * np.tanh(n + sigmoid(r + rr) * rn) + z * h
    return h


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_results_and_loss_are_those_of_a_loop(kind) -> None:
    ours = OurSequences(kind, 3, WORDS, "numpy")
    p = ours.parameters()
    flat = [ours.flat(sentence) for sentence in SENTENCES]
    logits = np.array([last(kind, p, sentence.words) @ p["out_weight"] + p["out_bias"] for sentence in flat])
    np.testing.assert_allclose(ours.infer(SENTENCES), logits, atol=1e-6)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    losses = [-np.log(row[label]) for row, (_, label) in zip(chances, SENTENCES, strict=True)]
    assert ours.loss(SENTENCES) == pytest.approx(np.mean(losses), rel=1e-5)
    prepared = ours.program.prepare(SENTENCES)
    np.testing.assert_array_equal(ours.infer(prepared), ours.infer(SENTENCES))


def test_packed_words_are_those_of_the_sentences() -> None:
    """Read back row by row: each sentence's words in order."""
    sentences = [flat_sentence(words, 0) for words in ([3], [1, 2, 3], [5, 4], [7, 8, 9])]
    packed = pack(sentences)
    read: list[list[int]] = [[] for _ in sentences]
    words = iter(packed.words.tolist())
    for size in packed.sizes.tolist():
        for row in range(size):
            read[packed.order[row]].append(next(words))
    assert read == [sentence.words.tolist() for sentence in sentences]


def test_a_wrong_peer_is_refused_and_an_absent_one_is_named(tmp_path) -> None:
    script = wrong_peer(tmp_path)
    options = {"kinds": ["gru"], "hidden": [3], "batches": [2], "repeats": 1, "backend": "numpy"}
    with pytest.raises(FoldbatchError, match="benchmarks, PyTorch 1 x: expected a loss of"):
        sequences.run(random_trees(3), "here", **options, python=str(script))
    outcome = sequences.run(random_trees(3), "here", **options, python="/no/such/python")
    assert outcome.absent["PyTorch, gru"].startswith("not installed: PyTorch peer: expected an interpreter")
    assert len(outcome.found) == 1


@pytest.mark.skipif(not find_spec("torch"), reason="needs PyTorch: pip install -e '.[torch]'")
def test_ours_and_pytorchs_network_begin_with_the_same_loss() -> None:
    assert set(graphs.compared(8, 3, 1, "numpy")) == {"new", "ready"}


def test_a_first_step_is_timed_in_new_processes():
    measured = first_step.measured("numpy")
    assert list(measured) == ["import foldbatch", "first step, empty cache", "first step, code on disk"]
    assert all(seconds > 0 for seconds in measured.values())


def test_the_function_computes_what_the_block_does() -> None:
    trees = random_trees(4, words=9)
    words = words_of(trees)
    programs = [fb.compile(model, TESTED) for model in (tree_lstm(4, words), walk_of(4, words))]
    programs[1].warm(trees)
    for name, value in programs[0].params.items():
        programs[1].params[name] = value
    (loss, gradients), (found, same) = (program.value_and_grad(trees) for program in programs)
    assert found == loss
    for name, gradient in gradients.items():
        a, b = dense(gradient), dense(same[name])
        np.testing.assert_array_equal(a, b)
    results = [program.describe(trees) for program in programs]
    assert results[0].calls_forward == results[1].calls_forward
    assert results[0].calls_backward == results[1].calls_backward


@pytest.mark.skipif(not find_spec("torch"), reason="needs PyTorch: pip install -e '.[torch]'")
def test_ours_and_pytorchs_walks_agree() -> None:
    rows = deciding.run([[(3, (4, 5)), 7, ((8, 9), 2)]] * 2, [8, 12], "numpy")
    names = "decode, 8; decode, 12; beams, 8; halting, 8; halting, 12; adaptive, 8; parse, 8"
    assert "; ".join(row.task for row in rows) == names
    assert all(set(row.agree.values()) == {1.0} for row in rows)
    assert all(row.rounds > 0 for row in rows)


def test_the_command_prints_a_row_a_task(capsys, monkeypatch):
    monkeypatch.setattr(deciding, "TURNS", 2)
    assert main(["deciding", "--batch", "3", "--hidden", "8", "--repeats", "1", "--only", "parse"]) == 0
    assert "parse, 8" in capsys.readouterr().out


def test_one_process_of_the_parallel_benchmark_measures_a_step() -> None:
    """In a process of its own, as it binds itself to a core."""
    options = ["--worker", "--hidden", "3", "--batch", "2", "--steps", "2"]
    command = [sys.executable, "-m", "benchmarks.parallel", *options]
    measured = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert measured.keys() == {"step", "update", "busy", "share", "sent", "dense", "rows"}
    assert measured["step"] > 0
    assert measured["sent"] == 0.0  # nobody to send to
