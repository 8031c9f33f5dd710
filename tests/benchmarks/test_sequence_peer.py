"""PyTorch's LSTM and GRU compute our model, and learn what it learns."""

from __future__ import annotations

from benchmarks.sequence_peer import flat_sentence, pack


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
