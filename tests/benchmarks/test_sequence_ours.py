"""Our model over sentences, against a loop in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.sequence_ours import OurSequences
from foldbatch.trees import Vocabulary

SENTENCES = [(["good", "film"], 4), (["not", "good", "at", "all"], 1), (["film"], 2)]
WORDS = Vocabulary.count(word for words, _ in SENTENCES for word in words)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


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
