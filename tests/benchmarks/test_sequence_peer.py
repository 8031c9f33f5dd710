"""PyTorch's LSTM and GRU compute our model, and learn what it learns."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.sequence_ours import OurSequences, sentence_of
from benchmarks.sequence_peer import TorchGRU, TorchLSTM, flat_sentence, pack
from benchmarks.workload import random_trees
from foldbatch.trees import Vocabulary

SENTENCES = [sentence_of(tree) for tree in random_trees(5, seed=4, words=30)]
WORDS = Vocabulary.count(word for words, _ in SENTENCES for word in words)


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


@pytest.mark.parametrize(("kind", "peer"), [("lstm", TorchLSTM), ("gru", TorchGRU)])
def test_the_peer_computes_and_learns_what_we_do(kind, peer) -> None:
    """All parameters after three steps, to rounding: also second biases that stand for nothing of ours."""
    pytest.importorskip("torch")
    ours = OurSequences(kind, 4, WORDS, "numpy")
    theirs = peer(4, len(WORDS), ours.parameters())
    flat = [ours.flat(sentence) for sentence in SENTENCES]
    assert theirs.loss(flat) == pytest.approx(ours.loss(SENTENCES), rel=1e-6)
    np.testing.assert_allclose(theirs.infer(flat), ours.infer(SENTENCES), atol=1e-6)
    for _ in range(3):
        assert theirs.step(flat) == pytest.approx(ours.step(SENTENCES), rel=1e-5)
    expected = ours.parameters()
    found = {name: tensor.detach().numpy() for name, tensor in theirs.parameters.items()}
    for name, array in {**found, "embedding": theirs.embedding.numpy()}.items():
        np.testing.assert_allclose(array, expected[name], atol=2e-6, err_msg=name)
